package embedpg

// MemoryBase lets the tests keep their folders where clusters are made fast.
var MemoryBase = memoryBase
