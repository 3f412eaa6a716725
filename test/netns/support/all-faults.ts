/** All faults that are made for real on plain sites. */
import type { Fault } from './fault.ts'
import { DEAD_ROUNDS, HIDDEN, LATER_ROUNDS, LOST_ROUNDS } from './lost-faults.ts'
import { PORT_TAKEN, ROUNDS } from './site-faults.ts'

export const ALL_FAULTS: readonly Fault[] = [
  PORT_TAKEN,
  ...ROUNDS.flat(),
  ...LOST_ROUNDS.flat(),
  ...LATER_ROUNDS.flat(),
  HIDDEN,
  ...DEAD_ROUNDS.flat(),
]
