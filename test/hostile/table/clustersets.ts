/** Attacks by members of one clusterset on another that the same broker serves. */
import type { AttackRow } from './row.ts'

const HOSTED = '`protocol/transport/hosted-clusterset.ts`: each is served by itself, and knows no other.'

export const CLUSTERSETS: readonly AttackRow[] = [
  {
    id: 'clusterset-certificate',
    tried: 'A member asks for another clusterset in the TLS hello, in every call.',
    holds: 'It is a stranger there: each call is refused with the reason, and nobody of that id there notices.',
    against:
      '`protocol/transport/peer-check.ts` checks against the authorities of the clusterset asked for, and no other.',
  },
  {
    id: 'clusterset-token',
    tried: 'A token of one is shown at another, under the id of a member there, and with a look.',
    holds: 'It is not known there, and is not spent where it is from.',
    against: HOSTED,
  },
  {
    id: 'clusterset-forged-record',
    tried: 'A member names another clusterset in each text that it may publish.',
    holds: 'What is taken stays in its own clusterset; members of the same id elsewhere keep their records.',
    against: HOSTED,
  },
]
