// TensorFlow.js's end of formats/tfjs/run.py: node run.js PLACE..., where the package lies below PLACE/node_modules.
// It reads one request a line, and answers each with one line: {"result": ...}, {"refused": why} or {"error": why}.
'use strict';
const fs = require('fs');
const path = require('path');
const readline = require('readline');

const load = (name) => require(require.resolve(`@tensorflow/${name}`, {paths: process.argv.slice(2)}));
const core = load('tfjs-core');
load('tfjs-backend-cpu');
const layers = load('tfjs-layers');

// With all of its parts, TensorFlow.js gives tensors these as methods. Its initializer Orthogonal calls them.
const METHODS = {...core, flatten: (tensor) => core.reshape(tensor, [tensor.size])};
for (const name of ['flatten', 'stridedSlice', 'sign', 'transpose', 'reshape']) {
  core.Tensor.prototype[name] = core.Tensor.prototype[name] || function (...args) { return METHODS[name](this, ...args); };
}

const RECURRENT = new Set(['SimpleRNN', 'LSTM', 'GRU', 'Bidirectional']);
const TYPES = {float32: Float32Array, int32: Int32Array, bool: Uint8Array};
class Refused extends Error {}

function encoded(tensor) {
  const data = tensor.dataSync();
  return {shape: tensor.shape, dtype: tensor.dtype, data: Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString('base64')};
}

function decoded({shape, dtype, data}) {
  const bytes = Buffer.from(data, 'base64');
  const values = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  return core.tensor(new TYPES[dtype](values), shape, dtype);
}

const name = (tensor) => tensor.sourceLayer.name;
const apart = (names) => names.map((each, place) => (names.indexOf(each) < place ? `${each}_${place}` : each));  // a layer's several outputs
const listed = (value) => (value == null ? [] : Array.isArray(value) ? value : [value]);
const ways = (layer) => (layer.getClassName() === 'Bidirectional' ? [layer.forwardLayer, layer.backwardLayer] : [layer]);
const per = (layer) => (ways(layer)[0].getClassName() === 'LSTM' ? 2 : 1);
const inside = (model) => model.layers.flatMap((layer) => [layer, ...(layer.layers ? inside(layer) : [])]);

function recurrent(name) {
  const layer = inside(model).find((each) => each.name === name && RECURRENT.has(each.getClassName()));
  if (!layer) throw new Refused(`the model has no recurrent layer '${name}'`);
  return layer;
}

// A graph model gives the same outputs from call to call, and its layers are nodes: none of them can be watched.
async function loadGraph(artifacts) {
  let converter;
  try {
    converter = load('tfjs-converter');
  } catch (error) {
    throw new Refused('it is a graph model, and @tensorflow/tfjs-converter was not found: npm install @tensorflow/tfjs');
  }
  model = await converter.loadGraphModel({load: async () => artifacts});
  const shape = (tensor) => (tensor.shape || []).map((length) => (length < 0 ? null : length));
  return {
    inputs: model.inputs.map((tensor) => ({name: tensor.name, shape: shape(tensor), dtype: tensor.dtype})),
    outputs: model.outputNodes, rows: [], masks: [], zero: false,
  };
}

let model = null;
let graph = false;
let calls = [];

const requests = {
  async load({file}) {
    if (fs.statSync(file).isDirectory()) file = path.join(file, 'model.json');
    const document = JSON.parse(fs.readFileSync(file, 'utf8'));
    if (document.modelTopology == null) throw new Refused('it is no model');
    const parts = document.weightsManifest.flatMap((group) => group.paths.map((name) => fs.readFileSync(path.join(path.dirname(file), name))));
    const data = Buffer.concat(parts);
    const artifacts = {
      modelTopology: document.modelTopology,
      weightSpecs: document.weightsManifest.flatMap((group) => group.weights),
      weightData: data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength),
    };
    graph = document.modelTopology.node != null;
    try {
      if (graph) return await loadGraph({...artifacts, signature: document.signature});
      model = await layers.loadLayersModel({load: async () => artifacts});
    } catch (error) {
      throw new Refused(`TensorFlow.js does not load it: ${error.message}`);
    }
    const every = inside(model);
    return {
      inputs: model.inputs.map((tensor, place) => ({name: name(tensor), shape: tensor.shape, dtype: tensor.dtype})),
      outputs: apart(model.outputs.map(name)),
      rows: every.filter((layer) => layer.getClassName() === 'Embedding').map((layer) => layer.inputDim),
      masks: every.filter((layer) => layer.getClassName() === 'Masking').map((layer) => layer.maskValue),
      zero: every.some((layer) => layer.maskZero),
    };
  },
  // Have layers record their calls: what they read, their mask and states, and what they give.
  watch({names}) {
    const counts = {};
    if (graph) return counts;
    for (const layer of inside(model)) {
      if (!names.includes(layer.name) || !RECURRENT.has(layer.getClassName())) continue;
      counts[layer.name] = (counts[layer.name] || 0) + 1;
      const call = layer.call.bind(layer);
      layer.call = (inputs, settings) => {
        const output = call(inputs, settings);
        const mask = settings && settings.mask;
        calls.push({
          layer: layer.name,
          per: per(layer),
          apart: ways(layer).length === 2 && layer.mergeMode == null ? 2 : 1,
          x: encoded(listed(inputs)[0]),
          mask: listed(mask)[0] ? encoded(core.cast(listed(mask)[0], 'bool')) : null,
          states: listed(settings && settings.initialState).map(encoded),
          outputs: listed(output).map(encoded),
        });
        return output;
      };
    }
    return counts;
  },
  reset() {
    if (graph) return;
    for (const layer of inside(model)) {
      if (RECURRENT.has(layer.getClassName())) for (const way of ways(layer)) if (way.stateful) way.resetStates();
    }
  },
  async run({inputs}) {
    calls = [];
    if (graph) {
      const read = inputs.map(decoded);
      const given = listed(await model.executeAsync(read));
      const outputs = given.map(encoded);
      core.dispose([...read, ...given]);
      return {outputs, calls};
    }
    const outputs = core.tidy(() => listed(model.predict(inputs.map(decoded), {batchSize: Math.max(1, inputs[0].shape[0])})).map(encoded));
    return {outputs, calls};
  },
  weights: () => (graph ? Object.values(model.weights).map(([tensor]) => tensor) : model.getWeights()).map(encoded),
  assign({weights}) {
    if (!graph) return model.setWeights(weights.map(decoded));
    const names = Object.keys(model.weights);
    model.executor.weightMap = Object.fromEntries(weights.map((weight, place) => [names[place], [decoded(weight)]]));
  },
  // How many tensors are alive: a loop that leaves some behind fills a page's memory.
  alive: () => core.memory().numTensors,
  ways({name}) {
    const layer = recurrent(name);
    return [ways(layer).length, per(layer)];
  },
  // Run one layer with states of its own.
  layer({name, x, states}) {
    const layer = recurrent(name);
    for (const part of [layer, ...ways(layer)]) {
      part.returnSequences = true;
      part.returnState = true;
      part._stateful = false;
    }
    return core.tidy(() => listed(layer.call(decoded(x), {initialState: states.length ? states.map(decoded) : null})).map(encoded));
  },
};

async function answer(line) {
  try {
    const request = JSON.parse(line);
    return {result: await requests[request.what](request)};
  } catch (error) {
    return error instanceof Refused ? {refused: error.message} : {error: String((error && error.message) || error)};
  }
}

core.setBackend('cpu').then(async () => {
  for await (const line of readline.createInterface({input: process.stdin})) {
    process.stdout.write(`${JSON.stringify((await answer(line)) || {})}\n`);
  }
});
