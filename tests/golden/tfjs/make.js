// Have TensorFlow.js save models, with inputs and outputs: node make.js NODE_MODULES FOLDER. See make.py.
'use strict';
const fs = require('fs');
const path = require('path');
const [, , modules, out] = process.argv;
const load = (name) => require(path.join(modules, '@tensorflow', name));
const core = load('tfjs-core');
load('tfjs-backend-cpu');
const tf = load('tfjs-layers');
// Without its package of all parts it lacks what its initializer of recurrent kernels needs.
const recurrent = (name) => (settings) => tf.layers[name]({recurrentInitializer: 'glorotNormal', ...settings});
const L = {...tf.layers};
for (const name of ['lstm', 'gru', 'simpleRNN', 'lstmCell', 'gruCell']) L[name] = recurrent(name);
const line = (...layers) => tf.sequential({layers});
const sequences = {units: 3, returnSequences: true};
const tokens = (settings) => L.embedding({inputDim: 11, outputDim: 4, maskZero: true, ...settings});
const embedded = () => tokens({inputLength: 6});
const a = () => tf.input({shape: [6], name: 'a'});
const b = () => tf.input({shape: [6, 2], name: 'b'});

const models = {
  sequence: () => line(embedded(), L.lstm({units: 5, returnSequences: true}), L.bidirectional({layer: L.gru(sequences), mergeMode: 'concat'}),
    L.simpleRNN({units: 4, returnSequences: true}), L.timeDistributed({layer: L.dense({units: 3, activation: 'relu'})}),
    L.lstm({units: 2, recurrentActivation: 'sigmoid', goBackwards: true}), L.dense({units: 2, activation: 'softmax'})),
  convolution: () => line(L.conv1d({filters: 6, kernelSize: 3, inputShape: [8, 3], padding: 'same', activation: 'relu'}),
    L.batchNormalization({}), L.maxPooling1d({poolSize: 2}), L.dropout({rate: 0.3}), L.layerNormalization({}), L.gru({units: 4}),
    L.leakyReLU({}), L.dense({units: 1, useBias: false})),
  two_inputs() {
    const x = tf.input({shape: [5, 3], name: 'x'}), z = tf.input({shape: [2], name: 'z'});
    const y = L.concatenate().apply([L.lstm({units: 4}).apply(L.lstm(sequences).apply(L.masking({maskValue: 0}).apply(x))), z]);
    return tf.model({inputs: [x, z], outputs: [L.dense({units: 3, activation: 'hardSigmoid'}).apply(y), L.dense({units: 2}).apply(y)]});
  },
  nested() {
    const x = tf.input({shape: [5, 3]});
    const inner = line(L.lstm({units: 4, inputShape: [5, 3], returnSequences: true}), L.dense({units: 3, activation: 'tanh'}));
    return tf.model({inputs: x, outputs: L.globalAveragePooling1d({}).apply(inner.apply(x))});
  },
  states() {
    const x = tf.input({shape: [5, 3]}), z = tf.input({shape: [7, 2]});
    const [, ...states] = L.lstm({units: 4, returnState: true}).apply(x);
    return tf.model({inputs: [x, z], outputs: L.lstm({units: 4, returnSequences: true}).apply(z, {initialState: states})});
  },
  shared() {
    const x = tf.input({shape: [5, 3], name: 'x'}), z = tf.input({shape: [5, 3], name: 'z'}), layer = L.gru({units: 4});
    return tf.model({inputs: [x, z], outputs: L.add().apply([layer.apply(x), layer.apply(z)])});
  },
  // What its saver writes as null, or not at all.
  unset: () => line(L.embedding({inputDim: 11, outputDim: 4, inputLength: 6}), L.reshape({targetShape: [6, 4, 1]}),
    L.separableConv2d({filters: 3, kernelSize: 2}), L.timeDistributed({layer: L.flatten()}), L.lstm({units: 3, unroll: null, useBias: null})),
  several_outputs() {
    const x = tf.input({shape: [5, 3]});
    const apart = L.bidirectional({layer: L.simpleRNN({units: 2}), mergeMode: null});
    return tf.model({inputs: x, outputs: [...L.gru({units: 4, returnState: true}).apply(x), ...apart.apply(x)]});
  },
  cell: () => line(L.rnn({cell: L.gruCell({units: 3}), inputShape: [4, 3]})),
  cells: () => line(L.rnn({cell: [L.lstmCell({units: 3}), L.gruCell({units: 2})], inputShape: [4, 3]})),
  // Masks: TensorFlow.js gives one to all layers that it runs later.
  masked_before_repeating: () => line(embedded(), L.lstm({units: 3}), L.repeatVector({n: 4}), L.lstm(sequences)),
  masked_before_leaky: () => line(embedded(), L.lstm(sequences), L.leakyReLU({}), L.lstm({units: 3})),
  masked_average: () => line(embedded(), L.lstm(sequences), L.globalAveragePooling1d({})),
  masked_both_ways: () => line(embedded(), L.bidirectional({layer: L.lstm(sequences), mergeMode: 'concat'}), L.flatten()),
  masked_flat: () => line(embedded(), L.lstm(sequences), L.flatten(), L.dense({units: 2})),
  masked_convolution: () => line(embedded(), L.conv1d({filters: 3, kernelSize: 3, padding: 'same'}), L.lstm({units: 3})),
  masked_pooling: () => line(embedded(), L.maxPooling1d({poolSize: 2}), L.lstm({units: 3})),
  masked_passing: () => line(embedded(), L.timeDistributed({layer: L.dense({units: 3})}), L.layerNormalization({}),
    L.batchNormalization({}), L.dropout({rate: 0.5}), L.activation({activation: 'tanh'}), L.gru({units: 3})),
  masked_first() {
    const [x, z] = [a(), b()];
    return tf.model({inputs: [x, z], outputs: L.concatenate().apply([L.lstm({units: 3}).apply(tokens().apply(x)), L.lstm({units: 2}).apply(z)])});
  },
  masked_second() {
    const [x, z] = [a(), b()];
    return tf.model({inputs: [x, z], outputs: L.concatenate().apply([L.lstm({units: 2}).apply(z), L.lstm({units: 3}).apply(tokens().apply(x))])});
  },
  masked_begun() {
    const [x, h] = [a(), tf.input({shape: [3], name: 'h'})];
    return tf.model({inputs: [x, h], outputs: L.gru({units: 3}).apply(tokens().apply(x), {initialState: h})});
  },
  masked_stateful: () => line(tokens({batchInputShape: [2, 6]}), L.simpleRNN({units: 3, stateful: true})),
  masked_outside() {
    const x = a();
    const inner = line(L.lstm({units: 4, inputShape: [6, 4], returnSequences: true}));
    return tf.model({inputs: x, outputs: L.lstm({units: 2}).apply(inner.apply(tokens().apply(x)))});
  },
  masked_inside() {
    const x = a();
    return tf.model({inputs: x, outputs: L.lstm({units: 2}).apply(line(embedded(), L.dense({units: 4})).apply(x))});
  },
};

async function main() {
  await core.setBackend('cpu');
  for (const [name, make] of Object.entries(models)) {
    const model = make();
    let seed = 1;
    const drawn = (shape, least = -0.8) => core.randomUniform(shape, least, 0.9, 'float32', seed++);
    model.setWeights(model.weights.map((weight) => drawn(weight.shape, weight.originalName.includes('variance') ? 0.1 : -0.8)));
    const folder = path.join(out, name);
    fs.mkdirSync(folder, {recursive: true});
    await model.save({save: async (saved) => {
      const document = {modelTopology: saved.modelTopology, format: saved.format, generatedBy: saved.generatedBy, convertedBy: null,
        weightsManifest: [{paths: ['./model.weights.bin'], weights: saved.weightSpecs}]};
      fs.writeFileSync(path.join(folder, 'model.json'), JSON.stringify(document));
      fs.writeFileSync(path.join(folder, 'model.weights.bin'), Buffer.from(saved.weightData));
      return {modelArtifactsInfo: {dateSaved: new Date(), modelTopologyType: 'JSON'}};
    }});
    const x = model.inputs.map(({shape}) => (shape.length === 2 && shape[1] === 6
      ? core.tensor([[1, 2, 3, 4, 0, 0], [5, 6, 0, 8, 9, 10]]) : drawn(shape.map((length) => length || 2))));
    const y = [].concat(model.predict(x.length > 1 ? x : x[0]));
    const arrays = (tensors) => tensors.map((tensor) => tensor.arraySync());
    fs.writeFileSync(path.join(folder, 'io.json'), JSON.stringify({x: arrays(x), y: arrays(y)}));
  }
}
main().catch((error) => { console.error(error); process.exit(1); });
