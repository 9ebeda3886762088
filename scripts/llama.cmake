# Read by CMake right after llama.cpp's own project() call, see build_llama.py.
# llama-cpp-python forces this option on in the cache; a normal variable goes before the cache.
# mashbox does not use that part (argument parsing, chat formats, downloads): 57 of 140 build steps,
# almost half of the compiling time.
set(LLAMA_BUILD_COMMON OFF)
