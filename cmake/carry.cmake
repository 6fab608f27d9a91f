# Turns a text file into a C string: cmake -DFROM=file -DTO=file.c -DID=name -P carry.cmake
# Users declare it as `extern const char ID[];`. Bytes, not a string literal: C compilers may refuse long literals.
file(READ "${FROM}" hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
file(WRITE "${TO}" "extern const char ${ID}[];\nconst char ${ID}[] = {${bytes}0};\n")
