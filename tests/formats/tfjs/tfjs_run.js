// Runs a layers model in TensorFlow.js: node tfjs_run.js NODE_MODULES MODEL.json < {"x": ...}; prints the outputs.
'use strict';
const fs = require('fs');
const path = require('path');
const [, , modules, file] = process.argv;
const load = (name) => require(path.join(modules, '@tensorflow', name));
const core = load('tfjs-core');
load('tfjs-backend-cpu');
const layers = load('tfjs-layers');

async function main() {
  const document = JSON.parse(fs.readFileSync(file, 'utf8'));
  const groups = document.weightsManifest;
  const parts = groups.flatMap((group) => group.paths.map((name) => fs.readFileSync(path.join(path.dirname(file), name))));
  const data = Buffer.concat(parts);
  const artifacts = {
    modelTopology: document.modelTopology,
    weightSpecs: groups.flatMap((group) => group.weights),
    weightData: data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength),
  };
  await core.setBackend('cpu');
  const model = await layers.loadLayersModel({load: async () => artifacts});
  const x = core.tensor(JSON.parse(fs.readFileSync(0, 'utf8')));
  const found = model.predict(x);
  const listed = Array.isArray(found) ? found : [found];
  process.stdout.write(JSON.stringify(listed.map((one) => one.arraySync())));
}
main().catch((error) => { console.error(String(error && error.stack || error)); process.exit(1); });
