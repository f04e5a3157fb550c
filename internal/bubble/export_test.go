package bubble

// RaceDetector tells the tests what they run under.
const RaceDetector = raceDetector
