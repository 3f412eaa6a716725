/** Reasons about the certificate authority of a clusterset: its rotation, and the location of its key. */
import type { ReasonTable } from './reason-row.ts'

const ADMIN = ['output of the command'] as const
const BROKER = ['log of the broker', 'log of the agent', 'output of the command'] as const

export const AUTHORITY_REASONS = {
  CertificateAuthorityRemoved: {
    status: 'Unauthenticated',
    means: 'The authority that issued the certificate has been removed from the clusterset.',
    todo: 'Join again with a new token.',
    shows: ['refusal by the broker', ...BROKER],
  },
  AuthorityInUse: {
    status: 'FailedPrecondition',
    means: 'Members or tokens still depend on the old authority.',
    todo: 'Wait: members need a day at most. `--force` cuts them off, and they join again with new tokens.',
    shows: ADMIN,
  },
  AuthorityNotRotating: {
    status: 'FailedPrecondition',
    means: 'No rotation is in progress.',
    todo: 'Check `sealane broker ca status`. `sealane broker ca rotate` starts one.',
    shows: ADMIN,
  },
  AuthorityRotating: {
    status: 'FailedPrecondition',
    means: 'Another authority has already been announced.',
    todo: 'Check `sealane broker ca status`, and finish or abort that rotation first.',
    shows: ADMIN,
  },
  AuthorityUnusable: {
    status: 'FailedPrecondition',
    means: 'The certificate cannot be the next authority of this clusterset.',
    todo: 'Create another one as docs/reference.md describes.',
    shows: ADMIN,
  },
  AuthorityKeyMissing: {
    means: 'The broker has no key for the signing authority, so joins and renewals wait.',
    todo: 'Put the key where `--ca-dir` points, or go back with `sealane broker ca abort`.',
    shows: BROKER,
  },
  AuthorityChanged: {
    means: 'The authority was removed while it signed a certificate.',
    todo: 'Nothing: the member retries. Run `sealane join` again.',
    shows: BROKER,
  },
  AuthorityExpires: {
    means: 'The certificate authority expires within half a year, and all certificates with it.',
    todo: 'Rotate it: `sealane broker ca rotate`.',
    shows: ['log of the broker'],
  },
  SignerFailed: {
    means: 'The signing command failed, timed out, or returned an invalid signature.',
    todo: 'Run it by hand as docs/reference.md describes. Joins and renewals are retried.',
    shows: BROKER,
  },
  SignerBusy: {
    means: 'More signatures are pending than the signing command delivers.',
    todo: 'Members retry. If it is frequent, make the signer faster.',
    shows: BROKER,
  },
} as const satisfies ReasonTable
