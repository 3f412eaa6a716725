/** Reasons about the services that Sealane depends on: API servers, and the store of the broker. */
import type { ReasonTable } from './reason-row.ts'

const API = ['log of every component in a Kubernetes cluster'] as const
const SITE = ['log of every component at a site', 'output of the command'] as const
const STORE = ['output of the command', 'log of the broker'] as const
const FOUND = ['output of the command'] as const
const VERIFY = 'Keep a copy of the store, and restore a backup in which `sealane broker verify` finds nothing.'

export const ACCESS_REASONS = {
  NoAnswer: {
    means: 'The API server accepted the connection and did not answer in time.',
    todo: 'Check its load, and any proxy in front of it.',
    shows: API,
  },
  NoConnection: {
    means: 'The API server is unreachable, or its certificate is not trusted.',
    todo: 'Check the address and the network.',
    shows: API,
  },
  NoLogin: {
    means: 'The command or file with the credentials failed.',
    todo: 'Correct the kubeconfig, or run its login command by hand.',
    shows: API,
  },
  TooLarge: {
    means: 'A list of the API server, or output of a command in a pod, is too large.',
    todo: 'If it lasts, look for an unusually large object.',
    shows: API,
  },
  ExecFailed: {
    means: 'A command in a pod did not run, or its connection ended early.',
    todo: 'Check that the pod is ready, and that the API server reaches its kubelet; then try again.',
    shows: FOUND,
  },
  ForwardFailed: {
    means: 'A connection to a port of a pod through the API server failed.',
    todo: 'Check that the pod is ready, and that the API server reaches its kubelet; then try again.',
    shows: FOUND,
  },
  HubUnreachable: {
    means: 'A node cannot reach the hub of its site, and continues with what it knows.',
    todo: 'Check that the hub runs, its `spec.hub.listen`, and firewalls between the nodes.',
    shows: SITE,
  },
  HubRefused: {
    means: 'The hub of a site refused a node, or a caller that is no node.',
    todo: 'Invite a node of the site again: `sealane site invite`. Otherwise find who calls.',
    shows: SITE,
  },
  HubNotActing: {
    means: 'A hub of a site without Kubernetes no longer acts: it lost the majority, or another acts.',
    todo: 'Nothing if another acts. Otherwise start the hubs, and open their port between them.',
    shows: ['log of every component at a site'],
  },
  PromotionIgnored: {
    means: '`sealane site promote` works only at a site with two hubs, on the one that does not act.',
    todo: 'Three hubs or more elect one by majority: start the machines of the others.',
    shows: ['log of every component at a site'],
  },
  StateUnwritable: {
    means: 'The broker cannot write its store.',
    todo: "Check the state directory and its permissions; run the command as the broker's user.",
    shows: STORE,
  },
  StateDamaged: {
    means: 'The store or a backup of it is damaged.',
    todo: 'Restore the latest backup.',
    shows: STORE,
  },
  StateLocked: {
    means: 'Another process has locked the store.',
    todo: 'Stop that process, or wait.',
    shows: STORE,
  },
  StateFull: {
    means: 'The disk is full, or etcd has used its quota: the broker accepts no changes.',
    todo: 'Free space on the disk; with etcd, compact, defragment and disarm the alarm.',
    shows: STORE,
  },
  StateTooNew: {
    means: 'A later release wrote the store or the backup.',
    todo: 'Use the newer release of Sealane.',
    shows: STORE,
  },
  StateForeign: {
    means: 'The file or etcd prefix is not the store of this broker: it has other data, or another clusterset.',
    todo: 'Choose another state directory or prefix.',
    shows: STORE,
  },
  StateAbsent: {
    means: 'The store does not exist at that location.',
    todo: 'Start the broker once first, or name its state directory.',
    shows: STORE,
  },
  StateStale: {
    means: 'The store is older than what this broker gave away, so it could give addresses twice.',
    todo: 'Restore the latest backup. `--accept-empty` overrides this where nothing is in use.',
    shows: STORE,
  },
  StateUnreachable: {
    means: "No member of the broker's etcd answers in time, so the broker confirms no changes.",
    todo: 'Check etcd and the network to it.',
    shows: STORE,
  },
  StateWriteUnknown: {
    means: 'The answer to a write was lost, and etcd could not be asked.',
    todo: 'The broker retries. Check the result before you repeat a command.',
    shows: STORE,
  },
  StateAccessDenied: {
    means: 'The etcd refuses the user, password or certificate, or the use of the prefix.',
    todo: 'Correct the credentials, or let the user read and write the prefix.',
    shows: STORE,
  },
  StateTooOld: {
    means: 'The etcd of the store is too old.',
    todo: 'Use etcd 3.4 or later.',
    shows: STORE,
  },
  StateMoved: {
    means: 'The store was moved to another one, which has all later changes.',
    todo: 'Use that store. `sealane broker migrate` moves it back.',
    shows: STORE,
  },
  StateHalfMoved: {
    means: 'The move of the store to or from another one is not complete.',
    todo: 'Run the same `sealane broker migrate` again: it resumes. `--cancel` reverts it.',
    shows: STORE,
  },
  StateNotEmpty: {
    means: 'The target store of the move is not empty.',
    todo: 'Name another store, or find whose this one is.',
    shows: ['output of the command'],
  },
  StateInconsistent: {
    means: 'Rows of the store contradict each other, or cannot be read.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreRowInvalid: {
    means: 'A row of the store cannot be read, or is impossible.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreRevisionDisorder: {
    means: 'A row has the revision of another row, or one later than the latest.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreIndexTwice: {
    means: 'Two members have the same number, and so the same lane addresses.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreAddressTwice: {
    means: 'Two members have overlapping global blocks, or two services the same clusterset IP.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreReferenceBroken: {
    means: 'A row refers to another one that is missing or different.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreHashDiffers: {
    means: 'The content of a record does not match its hash or size.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreOutboxInvalid: {
    means: 'A line that waits for the audit log is malformed.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreAuthorityInvalid: {
    means: 'The certificate authority is missing, expired, of another clusterset, or does not match its key.',
    todo: 'Restore `ca.crt` and `ca.key` from one backup.',
    shows: ['output of the command'],
  },
  StateFailed: {
    means: 'The store failed for another reason.',
    todo: 'Read the message, and check the disk.',
    shows: STORE,
  },
  StateRestored: {
    means: 'The broker continues from a backup.',
    todo: 'Check `sealane cluster list`: members that were evicted since are members again.',
    shows: ['log of the broker'],
  },
  ReplicaBehind: {
    means: 'A replica of the broker is more than a thousand changes behind another one.',
    todo: 'Check its CPU and connection to etcd, or delete its pod: its members move.',
    shows: ['alert SealaneBrokerReplicaBehind'],
  },
  StoreSlow: {
    means: 'Commits of the broker take half a second or more.',
    todo: 'Check the disks of etcd or the broker (each change waits for a sync), then its CPU.',
    shows: ['alert SealaneBrokerStoreSlow', ...FOUND],
  },
  AuditLogUnwritable: {
    means: 'The broker cannot write its audit log. It keeps a thousand lines of each kind, and continues.',
    todo: 'Check the folder and the disk, or what reads its standard output.',
    shows: ['log of the broker'],
  },
  AuditLinesLost: {
    means: 'Audit lines are lost: the log was unwritable for too long, or an act was not recorded.',
    todo: "Make it writable. The broker's log has most of what is lost.",
    shows: ['log of the broker'],
  },
  StateFileDamaged: {
    means: 'A file of the state directory is damaged and ignored; its owner writes it again.',
    todo: 'If it repeats, check the disk.',
    shows: ['log of the agent', 'log of every component at a site'],
  },
  LeaseTimeAhead: {
    means: "The renewal time of a Lease at a site is more than a day ahead of this machine's clock.",
    todo: 'Set the wrong clock.',
    shows: ['log of every component at a site'],
  },
  StateFolderUnusable: {
    means: 'The state directory cannot be read or written.',
    todo: 'Check the directory, its permissions and the disk.',
    shows: ['log of the agent', 'log of every component at a site'],
  },
  ObjectNotWritten: {
    means: 'The API server refuses an object of Sealane.',
    todo: "Check that the definitions are current (`DefinitionOutdated`), and the part's log.",
    shows: ['log of the agent', 'condition sealane.io/DerivedService of ServiceImport', ...FOUND],
  },
  PartForbidden: {
    means: 'A part of Sealane lacks a right: a role or binding was changed.',
    todo: 'Run `sealane join` again: it applies the roles and bindings.',
    shows: FOUND,
  },
  IdentityMissing: {
    means: 'The Secret with the identity of this cluster is gone, and the agent may not create one.',
    todo: 'Run `sealane join` again: it creates the Secret.',
    shows: FOUND,
  },
  AdmissionRefuses: {
    means:
      'An admission webhook (also one that does not answer), a policy or a quota refuses what Sealane writes or installs.',
    todo: 'Fix it, or exempt the service accounts of `sealane-system`. `--force` installs regardless.',
    shows: FOUND,
  },
  ApiServerReadOnly: {
    means: 'The API server answers, but accepts no writes of Sealane.',
    todo: 'Check its etcd: quota used up (alarm NOSPACE), disk full, or members missing.',
    shows: FOUND,
  },
  ObjectsNotFollowed: {
    means: 'The API server refuses to list or watch a kind of object.',
    todo: 'Check the CRDs and RBAC rules of Sealane: `sealane join` restores both.',
    shows: API,
  },
} as const satisfies ReasonTable
