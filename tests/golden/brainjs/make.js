// Train small networks with brain.js 1.6.1 and write them with what they give:
//   npm install --ignore-scripts brain.js@1.6.1 && node make.js
const fs = require("fs");
const brain = require("brain.js");

const steps = [[0.1, -0.2], [0.3, 0.4], [-0.5, 0.6], [0.7, 0.8], [0.2, -0.9]];
for (const kind of ["RNNTimeStep", "GRUTimeStep", "LSTMTimeStep"]) {
  const net = new brain.recurrent[kind]({ inputSize: 2, hiddenLayers: [4, 3], outputSize: 2 });
  net.train([steps, steps.slice().reverse()], { iterations: 60, errorThresh: 0 });
  const given = steps.map((_, last) => Array.from(net.run(steps.slice(0, last + 1))));
  fs.writeFileSync(`${kind}.json`, JSON.stringify(net.toJSON()));
  fs.writeFileSync(`${kind}.given.json`, JSON.stringify({ steps, given }));
}
const words = new brain.recurrent.GRU({ hiddenLayers: [3] });
words.train(["hello", "world"], { iterations: 5 });
fs.writeFileSync("GRU.json", JSON.stringify(words.toJSON()));
