// host_memory_device.h - a device whose tensors lie with the host: for tests that hand plain arrays to operations, on devices that have
// memory of their own.
#pragma once

struct backend;

// Every operation uploads what it is given, runs on `inner` and downloads what came out. Weights that prepare returned stay
// on the device. Owns inner.
struct backend *backend_host_memory(struct backend *inner);
