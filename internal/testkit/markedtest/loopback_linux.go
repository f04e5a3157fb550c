package markedtest

const manyLoopbacks = true
