/* A GRU in both directions that reads its weights from cuDNN's flat buffer, without cuDNN.

   encoder WEIGHTS X STEPS Y

   WEIGHTS  the buffer as `rnnconvert convert model.onnx encoder.bin` writes it: float32, little-endian
   X        STEPS rows of INPUTS values; Y  STEPS rows of 2 * HIDDEN values, forward and backward side by side

   offsets.h has the sizes, and where each gate of each matrix starts, as `rnnconvert layout cudnn --json` prints it.
   Compiled with -DHAVE_CUDNN -lcudnn -lcudart the same buffer goes to cudnnRNNForward, as it is, on a GPU. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "offsets.h"

enum { R, Z, N }; /* reset, update, candidate: cuDNN's order */

static float *weights;

static float *numbers(const char *path, size_t count) {
    float *found = malloc(count * sizeof *found);
    FILE *file = fopen(path, "rb");
    if (!found || !file || fread(found, sizeof *found, count, file) != count || fgetc(file) != EOF) {
        fprintf(stderr, "%s does not hold %zu numbers\n", path, count);
        exit(1);
    }
    fclose(file);
    return found;
}

#ifndef HAVE_CUDNN
/* row `unit` of a gate's matrix times a vector */
static float product(long matrix, int unit, const float *vector, int length) {
    const float *row = weights + matrix + (long)unit * length;
    float sum = 0;
    for (int i = 0; i < length; i++) sum += row[i] * vector[i];
    return sum;
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* h, one step later */
static void step(int direction, const float *x, float *h) {
    float next[HIDDEN];
    for (int unit = 0; unit < HIDDEN; unit++) {
        float from_x[3], from_h[3];
        for (int gate = R; gate <= N; gate++) {
            from_x[gate] = product(input[direction][gate], unit, x, INPUTS) + weights[input_bias[direction][gate] + unit];
            from_h[gate] = product(recurrent[direction][gate], unit, h, HIDDEN) + weights[recurrent_bias[direction][gate] + unit];
        }
        float r = sigmoid(from_x[R] + from_h[R]), z = sigmoid(from_x[Z] + from_h[Z]);
        next[unit] = (1 - z) * tanhf(from_x[N] + r * from_h[N]) + z * h[unit]; /* the reset gate stands after the product */
    }
    for (int unit = 0; unit < HIDDEN; unit++) h[unit] = next[unit];
}

static void run(const float *x, int steps, float *y) {
    for (int direction = 0; direction < 2; direction++) {
        float h[HIDDEN] = {0};
        for (int n = 0; n < steps; n++) {
            int at = direction ? steps - 1 - n : n;
            step(direction, x + at * INPUTS, h);
            for (int unit = 0; unit < HIDDEN; unit++) y[(at * 2 + direction) * HIDDEN + unit] = h[unit];
        }
    }
}
#else
#include <cuda_runtime.h>
#include <cudnn.h>

#define CHECK(call, text) do { int status = (call); if (status) { fprintf(stderr, "%s: %s\n", #call, text(status)); exit(1); } } while (0)
#define CUDA(call) CHECK(call, cudaGetErrorString)
#define CUDNN(call) CHECK(call, cudnnGetErrorString)

/* memory on the GPU, with these bytes in it if there are some */
static void *on_device(const void *bytes, size_t size) {
    void *memory = NULL;
    CUDA(cudaMalloc(&memory, size + !size));
    if (bytes) CUDA(cudaMemcpy(memory, bytes, size, cudaMemcpyHostToDevice));
    return memory;
}

static cudnnRNNDataDescriptor_t sequence(int steps, int width) {
    cudnnRNNDataDescriptor_t data;
    float padding = 0;
    CUDNN(cudnnCreateRNNDataDescriptor(&data));
    CUDNN(cudnnSetRNNDataDescriptor(data, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, steps, 1, width, &steps, &padding));
    return data;
}

/* cuDNN 8.9 or newer; what the process holds on the GPU is freed as it ends */
static void run(const float *x, int steps, float *y) {
    cudnnHandle_t handle;
    cudnnDropoutDescriptor_t no_dropout;
    cudnnRNNDescriptor_t rnn;
    cudnnTensorDescriptor_t states;
    CUDNN(cudnnCreate(&handle));
    CUDNN(cudnnCreateDropoutDescriptor(&no_dropout));
    CUDNN(cudnnSetDropoutDescriptor(no_dropout, handle, 0, NULL, 0, 0));
    CUDNN(cudnnCreateRNNDescriptor(&rnn));
    CUDNN(cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_GRU, CUDNN_RNN_DOUBLE_BIAS, CUDNN_BIDIRECTIONAL,
                                   CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, INPUTS, HIDDEN, HIDDEN,
                                   1, no_dropout, 0));
    int of_states[] = {2, 1, HIDDEN}, strides[] = {HIDDEN, HIDDEN, 1}; /* initial states of NULL are zeros */
    CUDNN(cudnnCreateTensorDescriptor(&states));
    CUDNN(cudnnSetTensorNdDescriptor(states, CUDNN_DATA_FLOAT, 3, of_states, strides));
    cudnnRNNDataDescriptor_t of_x = sequence(steps, INPUTS), of_y = sequence(steps, 2 * HIDDEN);

    size_t size, work, reserve;
    CUDNN(cudnnGetRNNWeightSpaceSize(handle, rnn, &size));
    if (size != WEIGHTS * sizeof(float)) { fprintf(stderr, "cuDNN wants %zu bytes of weights\n", size); exit(1); }
    CUDNN(cudnnGetRNNTempSpaceSizes(handle, rnn, CUDNN_FWD_MODE_INFERENCE, of_x, &work, &reserve));
    size_t values = (size_t)steps * 2 * HIDDEN * sizeof(float);
    void *result = on_device(NULL, values);
    CUDNN(cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_INFERENCE, on_device(&steps, sizeof steps), of_x,
                          on_device(x, (size_t)steps * INPUTS * sizeof(float)), of_y, result, states, NULL, NULL, states, NULL, NULL,
                          size, on_device(weights, size), work, on_device(NULL, work), reserve, on_device(NULL, reserve)));
    CUDA(cudaMemcpy(y, result, values, cudaMemcpyDeviceToHost));
    fprintf(stderr, "cuDNN %zu\n", cudnnGetVersion());
}
#endif

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: encoder WEIGHTS X STEPS Y\n"), 2;
    int steps = atoi(argv[3]);
    weights = numbers(argv[1], WEIGHTS);
    float *x = numbers(argv[2], (size_t)steps * INPUTS), *y = calloc((size_t)steps * 2 * HIDDEN, sizeof *y);
    run(x, steps, y);
    FILE *file = fopen(argv[4], "wb");
    if (!file || fwrite(y, sizeof *y, (size_t)steps * 2 * HIDDEN, file) != (size_t)steps * 2 * HIDDEN || fclose(file)) return 1;
    return 0;
}
