/* An LSTM fed one frame at a time, its states carried from call to call, with onnxruntime's C API.

   streaming MODEL IN HIDDEN < frames > outputs

   MODEL            what `rnnconvert convert ... stream.onnx --stateful` writes for one LSTM of one layer
   IN, HIDDEN       the width of a frame and of a state
   frames, outputs  float32, rows of IN and of HIDDEN numbers: each frame's output is there before the next frame is read

   cc -I/usr/include/onnxruntime streaming.c -o streaming -lonnxruntime */

#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const OrtApi *ort;

static void check(OrtStatus *status) {
    if (!status) return;
    fprintf(stderr, "%s\n", ort->GetErrorMessage(status));
    ort->ReleaseStatus(status);
    exit(1);
}

/* A tensor (1, 1, width) that shares its numbers with `values`. */
static OrtValue *tensor(const OrtMemoryInfo *memory, float *values, int64_t width) {
    const int64_t shape[] = {1, 1, width};
    OrtValue *made = NULL;
    check(ort->CreateTensorWithDataAsOrtValue(
        memory, values, (size_t)width * sizeof *values, shape, 3, ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &made));
    return made;
}

static float *zeros(int64_t width) {
    float *made = calloc((size_t)width, sizeof *made);
    if (!made) exit(1);
    return made;
}

int main(int argc, char **argv) {
    if (argc != 4) return fprintf(stderr, "usage: streaming MODEL IN HIDDEN < frames > outputs\n"), 2;
    const int64_t in = atoll(argv[2]), hidden = atoll(argv[3]);
    OrtEnv *environment = NULL;
    OrtSessionOptions *options = NULL;
    OrtSession *session = NULL;
    OrtMemoryInfo *memory = NULL;
    if (in < 1 || hidden < 1) return fprintf(stderr, "IN and HIDDEN are positive\n"), 2;
    if (!(ort = OrtGetApiBase()->GetApi(ORT_API_VERSION))) return fprintf(stderr, "onnxruntime is older than its header\n"), 1;
    check(ort->CreateEnv(ORT_LOGGING_LEVEL_WARNING, "streaming", &environment));
    check(ort->CreateSessionOptions(&options));
    check(ort->SetIntraOpNumThreads(options, 1)); /* one step is too little work to share */
    check(ort->CreateSession(environment, argv[1], options, &session));
    check(ort->CreateCpuMemoryInfo(OrtDeviceAllocator, OrtMemTypeDefault, &memory));

    /* Inputs and outputs stay where they are; the state that comes out is copied to where the next call reads it. */
    float *x = zeros(in), *y = zeros(hidden), *h = zeros(hidden), *c = zeros(hidden), *h_next = zeros(hidden), *c_next = zeros(hidden);
    const char *const inputs[] = {"x", "initial_h", "initial_c"}, *const outputs[] = {"y", "h_n", "c_n"};
    const OrtValue *given[] = {tensor(memory, x, in), tensor(memory, h, hidden), tensor(memory, c, hidden)};
    OrtValue *found[] = {tensor(memory, y, hidden), tensor(memory, h_next, hidden), tensor(memory, c_next, hidden)};
    const size_t size = (size_t)hidden * sizeof *h;
    while (fread(x, sizeof *x, (size_t)in, stdin) == (size_t)in) {
        check(ort->Run(session, NULL, inputs, given, 3, outputs, 3, found));
        memcpy(h, h_next, size);
        memcpy(c, c_next, size);
        if (fwrite(y, sizeof *y, (size_t)hidden, stdout) != (size_t)hidden || fflush(stdout)) return perror("outputs"), 1;
    }
    return 0; /* the process ends: what it holds goes with it */
}
