/** Attacks on the certificate authority of a clusterset. */
import type { AttackRow } from './row.ts'

export const AUTHORITY: readonly AttackRow[] = [
  {
    id: 'authority-removed',
    tried: 'Someone uses a certificate of a removed authority, on a new and on an old stream.',
    holds: 'New connections are refused with the reason, streams from before end, and nobody else notices.',
    against:
      '`protocol/transport/peer-check.ts` for what is opened, `broker/identity/certificate-use.ts` for what is open.',
  },
  {
    id: 'authority-forged',
    tried: 'A thief of the key of a removed or withdrawn authority signs certificates for members.',
    holds: 'They are refused with the reason, whatever they say of themselves.',
    against: '`protocol/transport/peer-check.ts`: who has signed it is looked at before what it says.',
  },
  {
    id: 'authority-signer',
    tried: 'The command that signs for the authority hangs, fails, prints garbage, or signs by another key.',
    holds: 'Joins and renewals fail with the reason and work later, with the same token; streams go on meanwhile.',
    against: '`broker/identity/command-signer.ts`: bounds of time, size and number; the signature is verified.',
  },
]
