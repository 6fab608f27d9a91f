// host_memory_device.h - a backend whose tensors are in host memory, on a device with memory of its own: for tests that pass plain arrays
// to operations.
#pragma once

struct backend;

// Every operation uploads its arguments, runs on `inner` and downloads the results. Weights returned by prepare stay on the device.
// Takes ownership of inner.
struct backend *backend_host_memory(struct backend *inner);
