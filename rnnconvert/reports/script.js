// The page is complete without this: it only offers to copy the command.
for (const button of document.querySelectorAll("button.copy")) {
  if (navigator.clipboard) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }
}
