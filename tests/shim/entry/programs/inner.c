__attribute__((visibility("default"))) const char* greet(void) { return "private library found"; }
