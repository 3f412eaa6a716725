/** Reasons about tokens, certificates and memberships: whom the broker lets in. */
import type { ReasonTable } from './reason-row.ts'

const BROKER = ['refusal by the broker', 'log of the broker', 'log of the agent'] as const
const AGENT = ['log of the agent'] as const
const ADMIN = ['output of the command'] as const
const NEW_TOKEN = 'Create another token with `sealane token create`, and join with it.'

export const MEMBER_REASONS = {
  TokenMalformed: {
    status: 'Unauthenticated',
    means: 'The text is no join token.',
    todo: 'Copy the token again, whole.',
    shows: [...BROKER, ...ADMIN],
  },
  TokenDamaged: {
    means: 'The checksum of the join token is wrong: it was cut short or changed while it was copied.',
    todo: 'Copy the token again, whole.',
    shows: [...ADMIN, 'log of the agent'],
  },
  TokenVersion: {
    means: 'The join token has a form that this release does not know.',
    todo: 'Use the release of Sealane that the broker has.',
    shows: [...ADMIN, 'log of the agent'],
  },
  TokenUnknown: {
    status: 'Unauthenticated',
    means: 'The broker does not know the token: another broker made it, or it was removed.',
    todo: NEW_TOKEN,
    shows: [...BROKER, ...ADMIN],
  },
  TokenRevoked: { status: 'Unauthenticated', means: 'Somebody revoked the token.', todo: NEW_TOKEN, shows: BROKER },
  TokenExpired: {
    status: 'Unauthenticated',
    means: 'The token has expired.',
    todo: NEW_TOKEN,
    shows: [...BROKER, ...ADMIN],
  },
  TokenUsed: {
    status: 'Unauthenticated',
    means: 'The token has been used as often as it may be.',
    todo: NEW_TOKEN,
    shows: BROKER,
  },
  TokenOfEvictedMember: {
    status: 'Unauthenticated',
    means: 'The cluster used this token before it was evicted, and cannot come back by it.',
    todo: NEW_TOKEN,
    shows: BROKER,
  },
  TokenAwaitsApproval: {
    status: 'Unauthenticated',
    means: 'A cluster with another key waits for approval with this token, and nobody else can use it meanwhile.',
    todo: 'Find out whose request it is (`sealane cluster waiting`); refuse it if it is not yours, and create a token.',
    shows: [...BROKER, ...ADMIN],
  },
  JoinAwaitsApproval: {
    status: 'FailedPrecondition',
    means: 'The broker asks its operator before it lets the cluster in, and nobody has answered yet.',
    todo: 'Compare the fingerprint that both sides show, then run `sealane cluster accept` on the broker.',
    shows: [...BROKER, ...ADMIN],
  },
  JoinAwaitsAgreement: {
    status: 'FailedPrecondition',
    means: 'The join would give other members global addresses, and nobody here has agreed to that yet.',
    todo: 'Run `sealane join` again: it names the members, asks, and goes on. With `--yes` it does not ask.',
    shows: [...ADMIN],
  },
  JoinRefusedByOperator: {
    status: 'PermissionDenied',
    means: 'An operator of the broker has refused to let the cluster in.',
    todo: 'Ask why. To try again, join with a new token.',
    shows: [...BROKER, ...ADMIN],
  },
  RangesAwaitApproval: {
    status: 'FailedPrecondition',
    means:
      'The cluster states other address ranges than an operator of the broker accepted, and nobody has decided about ' +
      'them yet. The accepted ranges stay in force.',
    todo:
      'See what it states, and whom that renumbers, with `sealane cluster waiting` on the broker; then run ' +
      '`sealane cluster accept` or `refuse`. Or put the earlier ranges back in the cluster.',
    shows: [...BROKER, 'output of the command'],
  },
  RangesRefusedByOperator: {
    status: 'PermissionDenied',
    means:
      'An operator of the broker has refused address ranges that the cluster states. The accepted ranges stay in force.',
    todo: 'Put the earlier ranges back in the cluster, or ask why: other ranges wait for another answer.',
    shows: [...BROKER, 'output of the command'],
  },
  RangesAccepted: {
    status: 'FailedPrecondition',
    means: 'An operator has accepted ranges of the member, and the broker ends the stream to compare its records anew.',
    todo: 'Nothing.',
    shows: BROKER,
  },
  ApprovalNotSupported: {
    status: 'FailedPrecondition',
    means: 'The broker asks its operator before it lets a cluster in, and the release that joins cannot wait for that.',
    todo: 'Join with the release of Sealane that the broker has. The token is not spent.',
    shows: ['refusal by the broker', 'log of the broker'],
  },
  WaitingLimit: {
    status: 'ResourceExhausted',
    means: 'As many clusters wait for approval as the broker remembers, of all tokens or of this one.',
    todo: 'Accept or refuse those that `sealane cluster waiting` lists, or revoke the token that brought them.',
    shows: BROKER,
  },
  WaitingUnknown: {
    status: 'FailedPrecondition',
    means: 'No cluster waits for approval under this id, or with this token and this key.',
    todo: 'Look at `sealane cluster waiting` and `sealane cluster list`: it may have joined, or have been withdrawn.',
    shows: ADMIN,
  },
  WaitingAmbiguous: {
    status: 'FailedPrecondition',
    means: 'Several clusters wait for approval under this id, each with its own key.',
    todo: 'Ask the one that you expect for its fingerprint, and name it with `--fingerprint`.',
    shows: ADMIN,
  },
  FingerprintDiffers: {
    status: 'FailedPrecondition',
    means: 'The cluster that waits under this id has another key than the one that the command names.',
    todo: 'Do not accept it before you know whose key it is.',
    shows: ADMIN,
  },
  TokenForOtherCluster: {
    status: 'PermissionDenied',
    means: 'The token was made for another cluster id.',
    todo: 'Join with the cluster id that the message names, or create a token for this one.',
    shows: BROKER,
  },
  ClustersetUnknown: {
    status: 'FailedPrecondition',
    means: 'The broker serves no clusterset of this name.',
    todo: 'See which there are with `sealane broker clusterset list`; make one with `create`.',
    shows: ADMIN,
  },
  ClustersetInUse: {
    status: 'FailedPrecondition',
    means: 'The clusterset that is to be removed has members.',
    todo: 'Evict them first, or say `--force`: they stay without a broker until it is created again.',
    shows: ADMIN,
  },
  ClustersetLimit: {
    status: 'ResourceExhausted',
    means: 'The broker has as many clustersets as it may.',
    todo: 'Use one that there is, or a second broker.',
    shows: ADMIN,
  },
  TokenLimit: {
    status: 'ResourceExhausted',
    means: 'The broker holds as many tokens as it can.',
    todo: 'Wait: dead tokens go a week after they expire. Create tokens of several uses.',
    shows: ADMIN,
  },
  TooManyAttempts: {
    status: 'ResourceExhausted',
    means: 'Too many joins from one address or with one token, or looks with one token, came in a short time.',
    todo: 'Wait as long as the message says.',
    shows: BROKER,
  },
  ClockDiffers: {
    status: 'FailedPrecondition',
    means: 'The clocks of the cluster and the broker differ by more than five minutes.',
    todo: 'Set the clock of the one that is wrong; the message has both times.',
    shows: BROKER,
  },
  ClusterIdReserved: {
    status: 'InvalidArgument',
    means: 'The cluster id has a meaning of its own, such as `broker` or `kube-system`.',
    todo: 'Choose another cluster id.',
    shows: BROKER,
  },
  ClusterIdTaken: {
    status: 'AlreadyExists',
    means: 'A cluster with this id is a member already.',
    todo: 'Choose another cluster id. If it is the same cluster, create a token for it with `--cluster-id`.',
    shows: BROKER,
  },
  MemberLimit: {
    status: 'ResourceExhausted',
    means: 'The clusterset has as many members as the broker allows.',
    todo: 'Evict members that are gone for good, or start the broker with a higher --max-members, on every replica.',
    shows: BROKER,
  },
  RangeNearlyFull: {
    means: 'Of what all members share, 80 percent or more is used: members, tokens or clusterset IPs.',
    todo: 'The line in the log names which, and what to do. Members: start each replica with a higher --max-members.',
    shows: BROKER,
  },
  GlobalRangeExhausted: {
    status: 'ResourceExhausted',
    means: 'The global range has no free block for pod addresses that overlap those of others.',
    todo: 'The message says what was asked and what is free. Give the cluster other or smaller pod CIDRs.',
    shows: BROKER,
  },
  NotAMember: {
    status: 'PermissionDenied',
    means: 'The broker does not know the cluster as a member.',
    todo: 'Join with a new token.',
    shows: BROKER,
  },
  MemberLeft: {
    status: 'PermissionDenied',
    means: 'The cluster has left the clusterset.',
    todo: 'Join again with a new token.',
    shows: BROKER,
  },
  MemberEvicted: {
    status: 'PermissionDenied',
    means: 'An operator of the broker has evicted the cluster.',
    todo: 'Ask why. The cluster can join again with a new token.',
    shows: BROKER,
  },
  MemberRekeyed: {
    status: 'PermissionDenied',
    means: 'An operator of the broker has asked for a new identity of the cluster.',
    todo: 'Join again with the token that was made for it.',
    shows: BROKER,
  },
  MemberUnknown: {
    status: 'FailedPrecondition',
    means: 'The command names a cluster that is no member.',
    todo: 'Look at `sealane cluster list`.',
    shows: ADMIN,
  },
  MemberInContact: {
    status: 'FailedPrecondition',
    means: 'The cluster that is to be evicted is in contact with the broker.',
    todo: 'Run `sealane leave` there. `--force` evicts it all the same.',
    shows: ADMIN,
  },
  CertificateExpired: {
    status: 'Unauthenticated',
    means: 'The certificate of one of the two ends has expired.',
    todo: 'Check the clocks. A member whose certificate has expired joins again with a new token.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateNotYetValid: {
    means: 'The certificate of one of the two ends begins in the future.',
    todo: 'Set the clock of the end that is wrong.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateUntrusted: {
    means: 'The certificate of the other end was not issued by a CA that this end trusts.',
    todo: 'Check the address of the broker. If the broker was made anew, join again with a new token.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateOtherClusterset: {
    means: 'The certificate of the other end belongs to another clusterset.',
    todo: 'Check the address of the broker, and that the token is of this clusterset.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateWrongIdentity: {
    means: 'The certificate of the other end is trusted, but is not for this name or this use.',
    todo: 'Check the address of the broker: something else answers there.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateMissing: {
    means: 'The call needs a certificate, and none was shown.',
    todo: 'Join first. Whatever stands in front of the broker must pass TLS on as it is.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateReplaced: {
    status: 'PermissionDenied',
    means: 'The certificate has a successor, which is the one to renew.',
    todo: 'Nothing: the agent uses the newer one.',
    shows: BROKER,
  },
  CertificateCopied: {
    status: 'PermissionDenied',
    means: 'Somebody used a certificate after it had been replaced: there is a copy of the identity.',
    todo: 'Run `sealane cluster rekey` for the cluster on the broker, and find out who has the copy.',
    shows: BROKER,
  },
  IdentityForked: {
    status: 'PermissionDenied',
    means:
      'Two processes that do not share a store use the identity, each with a certificate of its own: somebody has a ' +
      'copy, and the broker takes neither.',
    todo: 'Run `sealane cluster rekey` for the cluster on the broker, join it with that token, and find the copy.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateUnknown: {
    means: 'A member shows a certificate that this CA issued and the database does not know: the database is older.',
    todo: 'Restore the latest backup: addresses that the broker gives now may be in use.',
    shows: ['log of the broker'],
  },
  CertificateForeign: {
    status: 'PermissionDenied',
    means:
      'The certificate is not of the present membership: another site has joined under this id, or this one again.',
    todo: 'Find out which of the two sites is to have the id. The other one joins under another id.',
    shows: BROKER,
  },
  StreamReplaced: {
    status: 'FailedPrecondition',
    means: 'A newer stream of the same cluster has taken over.',
    todo: 'Nothing, if it happens once. If it repeats, two sites use one identity.',
    shows: BROKER,
  },
  StreamStalled: {
    status: 'ResourceExhausted',
    means: 'The member did not read what the broker sent it.',
    todo: 'Look at the network between the two, and at the load of the agent.',
    shows: BROKER,
  },
  AddressesCarriedAgain: {
    status: 'FailedPrecondition',
    means: 'Addresses of the member are carried again, and the broker ends the stream to compare its records anew.',
    todo: 'Nothing.',
    shows: BROKER,
  },
  UnexpectedMessage: {
    status: 'FailedPrecondition',
    means: 'The member sent a message at a point where the protocol does not have it.',
    todo: 'Compare the releases of the member and the broker, and report it.',
    shows: BROKER,
  },
  MessageTooLarge: {
    status: 'ResourceExhausted',
    means: 'A message is larger than one end of the connection takes.',
    todo: 'Compare the releases of the member and the broker, and report it.',
    shows: ['log of the agent'],
  },
  RefusedByBroker: {
    status: 'FailedPrecondition',
    means: 'The broker refuses something, and is of a release that names no reason which this one knows.',
    todo: 'Read the message. Upgrade the older of the two.',
    shows: ['log of the agent', 'output of the command'],
  },
  RestoreSettling: {
    status: 'FailedPrecondition',
    means: 'The broker was restored from a backup, and does not know yet which numbers were given since.',
    todo: 'Try again at the time that the message names, or once all members are in contact with the broker.',
    shows: [...BROKER, ...ADMIN],
  },
  BackupMismatch: {
    status: 'FailedPrecondition',
    means: 'The backup is of a broker with other settings than the one that it is to replace.',
    todo: 'Start the broker with the setting of the backup; the message names it.',
    shows: ADMIN,
  },
  StateHasMembers: {
    status: 'FailedPrecondition',
    means: 'The state that the backup would replace has members.',
    todo: 'Check that it is the right broker. `--force` replaces the state all the same.',
    shows: ADMIN,
  },
  NotJoined: {
    means: 'The cluster could not join, and there is no name for the reason; the message says it.',
    todo: 'Mostly the broker is not reached: check its address and the network. The agent tries again by itself.',
    shows: AGENT,
  },
  LeaveNotReported: {
    means: 'The cluster leaves, and the broker could not be told; the message says why.',
    todo: 'Check the way to the broker. `sealane leave --force` leaves without telling it; then evict the cluster there.',
    shows: AGENT,
  },
  CertificateNotRenewed: {
    means:
      'The certificate of the cluster could not be renewed, and there is no name for the reason; the message says it.',
    todo: 'Check that the agent reaches the broker. It tries again by itself until the certificate ends.',
    shows: AGENT,
  },
  TokenNotRemoved: {
    means: 'A join token that is not needed any more could not be removed.',
    todo: 'Remove it by hand. Until it is used or expires, who reads it can join a cluster.',
    shows: AGENT,
  },
  MembershipRestored: {
    means: 'Somebody removed the Membership or the identity of the cluster, and the agent wrote it again.',
    todo: 'Find out who removed it. Only `sealane leave` ends a membership.',
    shows: AGENT,
  },
} as const satisfies ReasonTable
