/** Reasons about the certificate authority of a clusterset: its rotation, and where its key is. */
import type { ReasonTable } from './reason-row.ts'

const ADMIN = ['output of the command'] as const
const BROKER = ['log of the broker', 'log of the agent', 'output of the command'] as const
const STATUS = 'See `sealane broker ca status`.'

export const AUTHORITY_REASONS = {
  CertificateAuthorityRemoved: {
    status: 'Unauthenticated',
    means: 'The certificate was issued by an authority of the clusterset that was removed since.',
    todo: 'The cluster was away during the whole rotation, or was cut off by force: join again with a new token.',
    shows: ['refusal by the broker', ...BROKER],
  },
  AuthorityInUse: {
    status: 'FailedPrecondition',
    means: 'Members or tokens depend on the old authority, and removing it would cut them off; the message names them.',
    todo: 'Wait: a member needs one day at most. `--force` cuts them off, and they join again with new tokens.',
    shows: ADMIN,
  },
  AuthorityNotRotating: {
    status: 'FailedPrecondition',
    means: 'There is no rotation that could be finished or aborted.',
    todo: `${STATUS} \`sealane broker ca rotate\` begins one.`,
    shows: ADMIN,
  },
  AuthorityRotating: {
    status: 'FailedPrecondition',
    means: 'Another authority is announced already.',
    todo: `${STATUS} Finish or abort that rotation first.`,
    shows: ADMIN,
  },
  AuthorityUnusable: {
    status: 'FailedPrecondition',
    means: 'The certificate cannot be the next authority of this clusterset; the message says why.',
    todo: 'Make another one as docs/operations.md says.',
    shows: ADMIN,
  },
  AuthorityKeyMissing: {
    means: 'The broker has no key for the authority that is to sign, so joins and renewals wait.',
    todo: 'Put the key where `--ca-dir` says, or go back with `sealane broker ca abort`.',
    shows: BROKER,
  },
  AuthorityChanged: {
    means: 'The authority was removed between the signature and the moment when it would have counted.',
    todo: 'Nothing: the member asks again. Run `sealane join` again.',
    shows: BROKER,
  },
  AuthorityExpires: {
    means: 'The certificate authority ends within half a year; all certificates end with it.',
    todo: 'Rotate it: `sealane broker ca rotate`.',
    shows: ['log of the broker'],
  },
  SignerFailed: {
    means: 'The command that signs for the authority failed, did not end in time, or wrote no signature of its key.',
    todo: 'Run it by hand as docs/operations.md says. Joins and renewals are tried again by themselves.',
    shows: BROKER,
  },
  SignerBusy: {
    means: 'More signatures are waited for than the command that signs for the authority gives.',
    todo: 'Nothing, if it is rare: members ask again. Otherwise make the signer faster.',
    shows: BROKER,
  },
} as const satisfies ReasonTable
