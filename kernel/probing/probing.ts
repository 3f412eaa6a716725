/** Probing of far ends: timing, health and path sizes. */
export { type RoundTrip, answerWaitMs } from './answer-wait.ts'
export { SIZE_STEP, type SizeBounds } from './path-size.ts'
export type { Notice, NoticeStep } from './probe-packet.ts'
export { type OpenProbeSocket, type ProbeSocket, openUdpProbeSocket } from './probe-socket.ts'
export { type MeasuredPeer, type ProbedPeer, Prober } from './prober.ts'
