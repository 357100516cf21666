"""The autograd node of the kernels in C++, for those who ask for it: built, kept, launched."""
