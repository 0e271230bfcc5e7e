/* A GRU in both directions that reads its weights from cuDNN's flat buffer, without cuDNN.

   encoder WEIGHTS X STEPS Y

   WEIGHTS  the buffer as `rnnconvert convert model.onnx encoder.bin` writes it: float32, little-endian
   X        STEPS rows of INPUTS values; Y  STEPS rows of 2 * HIDDEN values, forward and backward side by side

   offsets.h has the sizes, and where each gate of each matrix starts, as `rnnconvert layout cudnn --json` prints it.
   With HAVE_CUDNN the same buffer goes to cudnnRNNForward as it is: see the end of this file. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "offsets.h"

enum { R, Z, N }; /* reset, update, candidate: cuDNN's order */

static float *weights;

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

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "usage: encoder WEIGHTS X STEPS Y\n"), 2;
    int steps = atoi(argv[3]);
    weights = numbers(argv[1], WEIGHTS);
    float *x = numbers(argv[2], (size_t)steps * INPUTS), *y = calloc((size_t)steps * 2 * HIDDEN, sizeof *y);
    for (int direction = 0; direction < 2; direction++) {
        float h[HIDDEN] = {0};
        for (int n = 0; n < steps; n++) {
            int at = direction ? steps - 1 - n : n;
            step(direction, x + at * INPUTS, h);
            for (int unit = 0; unit < HIDDEN; unit++) y[(at * 2 + direction) * HIDDEN + unit] = h[unit];
        }
    }
    FILE *file = fopen(argv[4], "wb");
    if (!file || fwrite(y, sizeof *y, (size_t)steps * 2 * HIDDEN, file) != (size_t)steps * 2 * HIDDEN || fclose(file)) return 1;
    return 0;
}

#ifdef HAVE_CUDNN
/* The same with cuDNN 8 or newer: not compiled here, and not run by the tests. */
#include <cuda_runtime.h>
#include <cudnn.h>

void with_cudnn(cudnnHandle_t handle, cudnnRNNDataDescriptor_t x_desc, const float *x, cudnnRNNDataDescriptor_t y_desc,
                float *y, cudnnTensorDescriptor_t h_desc, const int *lengths_on_device, void *workspace, size_t workspace_size) {
    cudnnDropoutDescriptor_t no_dropout;
    cudnnCreateDropoutDescriptor(&no_dropout);
    cudnnSetDropoutDescriptor(no_dropout, handle, 0, NULL, 0, 0);
    cudnnRNNDescriptor_t rnn;
    cudnnCreateRNNDescriptor(&rnn);
    cudnnSetRNNDescriptor_v8(rnn, CUDNN_RNN_ALGO_STANDARD, CUDNN_GRU, CUDNN_RNN_DOUBLE_BIAS, CUDNN_BIDIRECTIONAL,
                             CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH, INPUTS, HIDDEN, HIDDEN,
                             1, no_dropout, CUDNN_RNN_PADDED_IO_ENABLED);
    size_t size;
    cudnnGetRNNWeightSpaceSize(handle, rnn, &size); /* WEIGHTS * sizeof(float), or the descriptor is another one */
    if (size != WEIGHTS * sizeof(float)) exit(1);
    void *space;
    cudaMalloc(&space, size);
    cudaMemcpy(space, weights, size, cudaMemcpyHostToDevice);
    cudnnRNNForward(handle, rnn, CUDNN_FWD_MODE_INFERENCE, lengths_on_device, x_desc, x, y_desc, y, h_desc, NULL, NULL, h_desc,
                    NULL, NULL, size, space, workspace_size, workspace, 0, NULL);
    cudaFree(space);
    cudnnDestroyRNNDescriptor(rnn);
    cudnnDestroyDropoutDescriptor(no_dropout);
}
#endif
