/** Reasons about tokens, certificates and memberships: which members the broker admits. */
import type { ReasonTable } from './reason-row.ts'

const BROKER = ['refusal by the broker', 'log of the broker', 'log of the agent'] as const
const AGENT = ['log of the agent'] as const
const ADMIN = ['output of the command'] as const
const TOPOLOGY = ['condition Accepted of Topology', 'condition Applied of Topology'] as const
const NEW_TOKEN = 'Join with a new token (`sealane token create`).'

export const MEMBER_REASONS = {
  TokenMalformed: {
    status: 'Unauthenticated',
    means: 'The text is no join token.',
    todo: 'Copy the token again, whole.',
    shows: [...BROKER, ...ADMIN],
  },
  TokenDamaged: {
    means: 'The checksum of the join token is wrong: it was truncated or changed when copied.',
    todo: 'Copy the token again, whole.',
    shows: [...ADMIN, 'log of the agent'],
  },
  TokenVersion: {
    means: 'This release does not know the format of the join token.',
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
    means: 'The token has no uses left.',
    todo: NEW_TOKEN,
    shows: BROKER,
  },
  TokenOfEvictedMember: {
    status: 'Unauthenticated',
    means: 'The cluster used this token before it was evicted.',
    todo: NEW_TOKEN,
    shows: BROKER,
  },
  TokenAwaitsApproval: {
    status: 'Unauthenticated',
    means: 'A cluster with another key waits for approval with this token, and blocks it.',
    todo: "See whose request it is (`sealane cluster waiting`). Refuse a stranger's, and create another token.",
    shows: [...BROKER, ...ADMIN],
  },
  JoinAwaitsApproval: {
    status: 'FailedPrecondition',
    means: "The broker's operator has not approved the join yet.",
    todo: 'Compare the fingerprint on both sides, then run `sealane cluster accept` on the broker.',
    shows: [...BROKER, ...ADMIN],
  },
  JoinAwaitsAgreement: {
    status: 'FailedPrecondition',
    means: 'The join would give other members global addresses, and you have not agreed yet.',
    todo: 'Run `sealane join` again: it names them and asks. Agree if open connections to their pods may break.',
    shows: [...ADMIN],
  },
  JoinRefusedByOperator: {
    status: 'PermissionDenied',
    means: 'An operator of the broker refused the join.',
    todo: 'Ask why. To try again, join with a new token.',
    shows: [...BROKER, ...ADMIN],
  },
  RangesAwaitApproval: {
    status: 'FailedPrecondition',
    means: 'New ranges or labels of the cluster wait for an operator of the broker; the accepted ones stay.',
    todo: 'Run `sealane cluster waiting` on the broker, then `sealane cluster accept` or `refuse`.',
    shows: [...BROKER, 'output of the command'],
  },
  RangesRefusedByOperator: {
    status: 'PermissionDenied',
    means: 'An operator of the broker refused new ranges or labels of the cluster; the accepted ones stay.',
    todo: 'Restore the earlier ones, or ask why.',
    shows: [...BROKER, 'output of the command'],
  },
  LabelFixedByToken: {
    status: 'PermissionDenied',
    means: "A label in the site file differs from the join token's, which stays in force.",
    todo: 'Remove it from the site file, or join again with a token of `sealane token create --label`.',
    shows: [...BROKER, 'output of the command'],
  },
  RangesAccepted: {
    status: 'FailedPrecondition',
    means: 'An operator accepted ranges of the member: the stream starts again.',
    todo: 'Nothing.',
    shows: BROKER,
  },
  ApprovalNotSupported: {
    status: 'FailedPrecondition',
    means: 'The broker requires approval of joins, which the joining release does not support.',
    todo: 'Join with the release of the broker. The token is not used up.',
    shows: ['refusal by the broker', 'log of the broker'],
  },
  WaitingLimit: {
    status: 'ResourceExhausted',
    means: 'Too many clusters wait for approval, in total or with this token.',
    todo: 'Accept or refuse those that `sealane cluster waiting` lists, or revoke their token.',
    shows: BROKER,
  },
  WaitingUnknown: {
    status: 'FailedPrecondition',
    means: 'No cluster waits for approval with this id, or with this token and key.',
    todo: 'It may have joined (`sealane cluster list`) or withdrawn (`sealane cluster waiting`).',
    shows: ADMIN,
  },
  WaitingAmbiguous: {
    status: 'FailedPrecondition',
    means: 'Several clusters with different keys wait for approval with this id.',
    todo: 'Ask the cluster that you expect for its fingerprint, and name it with `--fingerprint`.',
    shows: ADMIN,
  },
  FingerprintDiffers: {
    status: 'FailedPrecondition',
    means: 'The cluster that waits with this id has another key than the command names.',
    todo: 'Do not accept it before you know whose it is.',
    shows: ADMIN,
  },
  TokenForOtherCluster: {
    status: 'PermissionDenied',
    means: 'The token was made for another cluster id.',
    todo: 'Join with that cluster id, or create a token for this one.',
    shows: BROKER,
  },
  ClustersetUnknown: {
    status: 'FailedPrecondition',
    means: 'The broker serves no clusterset of this name.',
    todo: 'List them with `sealane broker clusterset list`; make one with `create`.',
    shows: ADMIN,
  },
  ClustersetInUse: {
    status: 'FailedPrecondition',
    means: 'The clusterset to remove has members.',
    todo: 'Evict them first. With `--force` they have no broker until you create the clusterset again.',
    shows: ADMIN,
  },
  ClustersetLimit: {
    status: 'ResourceExhausted',
    means: 'The broker has reached its limit of clustersets.',
    todo: 'Use an existing one, or a second broker.',
    shows: ADMIN,
  },
  TokenLimit: {
    status: 'ResourceExhausted',
    means: 'The broker has reached its limit of tokens.',
    todo: 'Wait: the broker deletes dead tokens a week after they expire. Create tokens for several uses.',
    shows: ADMIN,
  },
  TooManyAttempts: {
    status: 'ResourceExhausted',
    means: 'Too many attempts came from one address or with one token in a short time.',
    todo: 'Wait as long as the message says.',
    shows: BROKER,
  },
  ClockDiffers: {
    status: 'FailedPrecondition',
    means: 'The clocks of the cluster and the broker differ by more than five minutes.',
    todo: 'Set the clock that is wrong.',
    shows: BROKER,
  },
  ClusterIdReserved: {
    status: 'InvalidArgument',
    means: 'The cluster id is reserved, such as `broker` or `kube-system`.',
    todo: 'Choose another cluster id.',
    shows: BROKER,
  },
  ClusterIdTaken: {
    status: 'AlreadyExists',
    means: 'A member already has this cluster id.',
    todo: 'Choose another cluster id. If it is the same cluster, create a token for it with `--cluster-id`.',
    shows: BROKER,
  },
  MemberLimit: {
    status: 'ResourceExhausted',
    means: 'The clusterset has reached its limit of members.',
    todo: 'Evict members that are gone for good, or raise --max-members on every replica.',
    shows: BROKER,
  },
  RangeNearlyFull: {
    means: 'At least 80 percent of the members, tokens or clusterset IPs are used.',
    todo: 'The log line has the remedy.',
    shows: BROKER,
  },
  GlobalRangeExhausted: {
    status: 'ResourceExhausted',
    means: 'The global range has no free block for pod addresses that overlap those of others.',
    todo: 'Give the cluster other or smaller pod CIDRs, or evict members that are gone for good.',
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
    means: 'An operator of the broker evicted the cluster.',
    todo: 'Ask why. The cluster can join again with a new token.',
    shows: BROKER,
  },
  MemberRekeyed: {
    status: 'PermissionDenied',
    means: 'An operator of the broker requested a new identity for the cluster.',
    todo: 'Join again with the token that was made for it.',
    shows: BROKER,
  },
  MemberUnknown: {
    status: 'FailedPrecondition',
    means: 'The named cluster is no member.',
    todo: 'Check `sealane cluster list`.',
    shows: ADMIN,
  },
  MemberInContact: {
    status: 'FailedPrecondition',
    means: 'The cluster to evict is connected to the broker.',
    todo: 'Run `sealane leave` there. `--force` evicts it anyway.',
    shows: ADMIN,
  },
  CertificateExpired: {
    status: 'Unauthenticated',
    means: 'The certificate of one end has expired.',
    todo: 'Check the clocks. A member renews it within 30 days (`--renewal-grace`); later it joins again with a new token.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateNotYetValid: {
    means: 'The certificate of one end is not valid yet.',
    todo: 'Set the clock of the end that is wrong.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateUntrusted: {
    means: "This end does not trust the CA of the other end's certificate.",
    todo: 'Check the address of the broker. If the broker was recreated, join again with a new token.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateOtherClusterset: {
    means: "The other end's certificate belongs to another clusterset.",
    todo: 'Check the address of the broker, and that the token is of this clusterset.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateWrongIdentity: {
    means: "The other end's certificate is trusted, but not for this name or use.",
    todo: 'Check the address of the broker: something else answers there.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateMissing: {
    means: 'The call needs a certificate, and the caller sent none.',
    todo: 'Join first. A proxy in front of the broker must pass TLS through.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateReplaced: {
    status: 'PermissionDenied',
    means: 'The certificate has already been replaced by a newer one.',
    todo: 'Nothing: the agent uses the newer one.',
    shows: BROKER,
  },
  CertificateCopied: {
    status: 'PermissionDenied',
    means: 'A certificate was used after it had been replaced: a copy of the identity exists.',
    todo: 'Run `sealane cluster rekey` on the broker, and find who has the copy.',
    shows: BROKER,
  },
  IdentityForked: {
    status: 'PermissionDenied',
    means:
      'Two processes without a shared store use the identity with different certificates. The broker accepts neither.',
    todo: 'Run `sealane cluster rekey` on the broker, join with that token, and find the copy.',
    shows: [...BROKER, ...ADMIN],
  },
  CertificateUnknown: {
    means: "The database does not know a member's valid certificate: it is too old.",
    todo: 'Restore the latest backup: addresses that the broker gives now may be in use.',
    shows: ['log of the broker'],
  },
  CertificateForeign: {
    status: 'PermissionDenied',
    means: 'The certificate belongs to an earlier membership: a site has joined with this id since.',
    todo: 'Decide which site keeps the id; the other joins with another.',
    shows: BROKER,
  },
  StreamReplaced: {
    status: 'FailedPrecondition',
    means: 'A newer stream of the same cluster replaced this one.',
    todo: 'If it repeats, two sites use one identity.',
    shows: BROKER,
  },
  StreamStalled: {
    status: 'ResourceExhausted',
    means: 'The member did not read what the broker sent.',
    todo: 'Check the network between the two, and the load of the agent.',
    shows: BROKER,
  },
  AddressesCarriedAgain: {
    status: 'FailedPrecondition',
    means: 'The broker carries addresses of the member again: the stream starts again.',
    todo: 'Nothing.',
    shows: BROKER,
  },
  UnexpectedMessage: {
    status: 'FailedPrecondition',
    means: 'The member sent a message out of place in the protocol.',
    todo: 'Compare the releases of the member and the broker, and report it.',
    shows: BROKER,
  },
  MessageTooLarge: {
    status: 'ResourceExhausted',
    means: 'A message is larger than one end accepts.',
    todo: 'Compare the releases of the member and the broker, and report it.',
    shows: ['log of the agent'],
  },
  RefusedByBroker: {
    status: 'FailedPrecondition',
    means: 'The broker refuses something for a reason that this release does not know.',
    todo: 'Upgrade the older of the two.',
    shows: ['log of the agent', 'output of the command'],
  },
  RestoreSettling: {
    status: 'FailedPrecondition',
    means: 'The restored broker does not know yet which numbers it gave since the backup.',
    todo: 'Try again at the named time, or once all members connect.',
    shows: [...BROKER, ...ADMIN],
  },
  BackupMismatch: {
    status: 'FailedPrecondition',
    means: 'The backup is of a broker with other settings.',
    todo: 'Start the broker with the setting of the backup.',
    shows: ADMIN,
  },
  StateHasMembers: {
    status: 'FailedPrecondition',
    means: 'The state that the backup would replace has members.',
    todo: 'Check that it is the right broker. `--force` replaces the state anyway.',
    shows: ADMIN,
  },
  TopologyChanged: {
    status: 'FailedPrecondition',
    means: 'The topology has changed since the plan that you saw.',
    todo: 'Look at the plan again: `sealane topology plan`.',
    shows: ADMIN,
  },
  TopologyNotSupported: {
    status: 'FailedPrecondition',
    means: 'A broker replica of an earlier release would send members what the topology forbids.',
    todo: 'Upgrade all replicas, then set it again. An object is applied again by itself.',
    shows: [...ADMIN, 'condition Applied of Topology'],
  },
  TopologyOwned: {
    status: 'FailedPrecondition',
    means: "An object in the broker's cluster sets the topology.",
    todo: 'Change the object. Or delete it: the topology stays, and commands set it again.',
    shows: ADMIN,
  },
  TopologyAccepted: {
    means: 'The broker can read the topology.',
    todo: 'Nothing.',
    shows: ['condition Accepted of Topology'],
  },
  TopologyInvalid: {
    means: 'A field of the topology is wrong, or of a later release; the last topology stays.',
    todo: 'Correct the field that the message names.',
    shows: TOPOLOGY,
  },
  TopologyNameUnknown: {
    means: 'The object is not named `default`, so it does not count.',
    todo: 'Name it `default`, or delete it.',
    shows: TOPOLOGY,
  },
  TopologyApplied: {
    means: 'The topology of the object counts.',
    todo: 'Nothing.',
    shows: ['condition Applied of Topology'],
  },
  TopologyNotFollowed: {
    status: 'FailedPrecondition',
    means: 'The replica of the broker that started last follows no object; the last topology stays.',
    todo: 'Start all replicas with `--topology-from object`.',
    shows: ['condition Applied of Topology'],
  },
  TopologyObjectDeleted: {
    means: 'The object that set the topology was deleted. The topology stays; commands set it again.',
    todo: 'Nothing, or apply the object again.',
    shows: ['log of the broker'],
  },
  TokenLabelsNotSupported: {
    status: 'FailedPrecondition',
    means: 'A replica of the broker of an earlier release may not keep the labels of a join token.',
    todo: 'Upgrade all replicas, then create the token again.',
    shows: ADMIN,
  },
  RelayNotSupported: {
    status: 'FailedPrecondition',
    means: 'A broker replica of an earlier release may not give members the relay.',
    todo: 'Upgrade all replicas, then add the relay again.',
    shows: ADMIN,
  },
  NotJoined: {
    means: 'The cluster could not join; the agent retries.',
    todo: 'Check the address of the broker and the network.',
    shows: AGENT,
  },
  ExportsUndecided: {
    means:
      'Only the broker knows whether an earlier release exported a service of a guarded namespace. Until it answers, ' +
      'nothing of the cluster is published.',
    todo: 'Check that the agent reaches the broker.',
    shows: ['log of the agent'],
  },
  LeaveNotReported: {
    means: 'The cluster is leaving and could not tell the broker.',
    todo: 'Check the network to the broker. Or `sealane leave --force`, then evict the cluster at the broker.',
    shows: AGENT,
  },
  CertificateNotRenewed: {
    means: 'The agent could not renew the certificate of the cluster.',
    todo: 'Check that the agent reaches the broker.',
    shows: AGENT,
  },
  TokenNotRemoved: {
    means: 'The agent could not remove a used join token.',
    todo: 'Remove it by hand: until it expires, anyone who reads it can join a cluster.',
    shows: AGENT,
  },
  MembershipRestored: {
    means: 'The Membership or identity of the cluster was removed, and the agent restored it.',
    todo: 'Find who removed it: only `sealane leave` ends a membership.',
    shows: AGENT,
  },
} as const satisfies ReasonTable
