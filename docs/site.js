// Copy takes the commands of a console: neither their prompts nor what they print.
document.addEventListener(
  "click",
  (event) => {
    const button = event.target.closest(".language-console [data-clipboard-target]");
    if (button) {
      const lines = button.closest(".language-console").querySelector("code").textContent.split("\n");
      const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
      button.setAttribute("data-clipboard-text", commands.join("\n"));
    }
  },
  true,
);
