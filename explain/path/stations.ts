/** The words for the stations of a call, and for what becomes of it. */

/** The stations of a packet, in the order in which it passes them. */
export const STATIONS = [
  'caller',
  'name',
  'shares',
  'access',
  'backends',
  'balance',
  'node',
  'gateway',
  'link',
  'far-gateway',
  'far-node',
  'far-pod',
] as const

/** From the best to the worst news. The exit codes of the command are 0, 2, 3 and 1. */
export const OUTCOMES = ['REACHABLE', 'AMBIGUOUS', 'UNDETERMINED', 'UNREACHABLE'] as const

/** What the sender of a probe sees. failed: it could not be sent. */
export const PROBE_RESULTS = ['answered', 'refused', 'unreachable', 'silent', 'failed'] as const

export type Station = (typeof STATIONS)[number]
export type Outcome = (typeof OUTCOMES)[number]
