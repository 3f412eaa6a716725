/** Reasons about what Sealane depends on: API servers, and the store of the broker. */
import type { ReasonTable } from './reason-row.ts'

const API = ['log of every component in a Kubernetes cluster'] as const
const STORE = ['output of the command', 'log of the broker'] as const
const FOUND = ['output of the command'] as const
const VERIFY = 'Keep a copy of the store, and restore a backup in which `sealane broker verify` finds nothing.'

export const ACCESS_REASONS = {
  NoAnswer: {
    means: 'The API server took the connection and gave no answer in time.',
    todo: 'Look at the load of the API server, and at what stands in front of it.',
    shows: API,
  },
  NoConnection: {
    means: 'The API server cannot be reached, or its certificate is not trusted; the message says which.',
    todo: 'Check the address and the network between the two.',
    shows: API,
  },
  NoLogin: {
    means: 'This side could not say who it is: the command or file that gives the login failed.',
    todo: 'Correct the kubeconfig, or run its login command by hand.',
    shows: API,
  },
  TooLarge: {
    means: 'The answer of the API server is larger than Sealane reads at once; it asks for smaller pages.',
    todo: 'Nothing, if it passes. Otherwise look for an object of an unusual size.',
    shows: API,
  },
  StateUnwritable: {
    means: 'The broker cannot write its store.',
    todo: 'Check the state directory and its permissions, and run the command as the user of the broker.',
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
    means:
      'The store cannot grow: the disk is full, or etcd has used its quota. Nothing is accepted until there is room.',
    todo: 'Make room on the disk of the state directory; with etcd, compact, defragment and disarm the alarm.',
    shows: STORE,
  },
  StateTooNew: {
    means: 'A later release wrote the store or the backup.',
    todo: 'Use the newer release of Sealane.',
    shows: STORE,
  },
  StateForeign: {
    means:
      'The file or the prefix of etcd is not the store of this Sealane broker: it has other data, or another clusterset.',
    todo: 'Choose another state directory or prefix.',
    shows: STORE,
  },
  StateAbsent: {
    means: 'There is no store where the command looks for it.',
    todo: 'Start the broker once before, or name its state directory.',
    shows: STORE,
  },
  StateStale: {
    means: 'The store is older than what this broker has given away, so that addresses in use could be given again.',
    todo: 'Restore the latest backup. `--accept-empty` goes past it where nothing is in use.',
    shows: STORE,
  },
  StateUnreachable: {
    means: 'No member of the etcd that holds the store answers in time. Nothing is acknowledged meanwhile.',
    todo: 'Read the message: it names the endpoints and what was waited for. Check etcd and the network to it.',
    shows: STORE,
  },
  StateWriteUnknown: {
    means: 'The answer to a write was lost, and etcd could not be asked whether it was done.',
    todo: 'Nothing for the broker: it asks again. After a command, look at what is there before you repeat it.',
    shows: STORE,
  },
  StateAccessDenied: {
    means: 'The etcd does not take the user, the password or the certificate, or the user may not use the prefix.',
    todo: 'Correct the credentials, or grant the user to read and write the prefix.',
    shows: STORE,
  },
  StateTooOld: {
    means: 'The etcd that holds the store is older than the broker needs.',
    todo: 'Use etcd 3.4 or a later one.',
    shows: STORE,
  },
  StateMoved: {
    means: 'The store was moved into another one, and what was done since is there and not here.',
    todo: 'Serve the store that the message names. `sealane broker migrate` moves it back.',
    shows: STORE,
  },
  StateHalfMoved: {
    means: 'The store is being moved into another one, or out of it, and the move is not over.',
    todo: 'Run the same `sealane broker migrate` again: it goes on where it ended. `--cancel` takes it back.',
    shows: STORE,
  },
  StateNotEmpty: {
    means: 'The store into which another one shall be moved has something in it.',
    todo: 'Name another store, or look whose this one is.',
    shows: ['output of the command'],
  },
  StateInconsistent: {
    means: 'Rows of the store contradict each other, or cannot be read.',
    todo: 'Read what `sealane broker verify` lists. Keep a copy, and restore a backup in which it finds nothing.',
    shows: ['output of the command'],
  },
  StoreRowInvalid: {
    means: 'A row of the store cannot be read, or says what cannot be.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreRevisionDisorder: {
    means: "A row has a revision that is another row's, or later than the latest.",
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
    means: 'A row names another one that is not there or says something else.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreHashDiffers: {
    means: 'The content of a record is not what its hash or its size says.',
    todo: `${VERIFY} The member that published it sends it anew when it has changed there.`,
    shows: ['output of the command'],
  },
  StoreOutboxInvalid: {
    means: 'A line that waits for the audit log is not as the broker writes it.',
    todo: VERIFY,
    shows: ['output of the command'],
  },
  StoreAuthorityInvalid: {
    means: "The certificate authority is not there, has ended, is of another clusterset, or its key is another's.",
    todo: 'Restore `ca.crt` and `ca.key` from one backup.',
    shows: ['output of the command'],
  },
  StateFailed: {
    means: 'The store failed in a way that has no name of its own; the message has what it said.',
    todo: 'Read the message, and check the disk.',
    shows: STORE,
  },
  StateRestored: {
    means: 'The broker goes on from a backup.',
    todo: 'Nothing, if you restored it. Look at `sealane cluster list`: whoever was evicted since is a member again.',
    shows: ['log of the broker'],
  },
  ReplicaBehind: {
    means: 'A replica of the broker is more than a thousand changes behind another one.',
    todo: 'Look at its processor time and its way to etcd. Its members go to others when its pod is deleted.',
    shows: ['alert SealaneBrokerReplicaBehind'],
  },
  StoreSlow: {
    means: 'Commits of the broker take half a second or more: by its own figures, or as a member waits for them.',
    todo: 'Look at the disks of etcd, or of the broker: each change waits for a sync of them. Then at its processor time.',
    shows: ['alert SealaneBrokerStoreSlow', ...FOUND],
  },
  AuditLogUnwritable: {
    means: 'The broker cannot write its audit log. Lines wait, up to a thousand of each kind; the broker goes on.',
    todo: 'Check the folder and the disk that the message names, or what reads its standard output.',
    shows: ['log of the broker'],
  },
  AuditLinesLost: {
    means: 'Lines of the audit log are lost: it could not be written for too long, or no line can be made of an act.',
    todo: 'Make it writable again. The log of the broker has most of what happened meanwhile.',
    shows: ['log of the broker'],
  },
  StateFileDamaged: {
    means: 'A file of the state directory is damaged, and what it says is not used. Its writer makes it anew.',
    todo: 'Nothing, if it happens once. Otherwise check the disk.',
    shows: ['log of the agent', 'log of every component at a site'],
  },
  LeaseTimeAhead: {
    means: 'A Lease at a site was renewed at a time that is more than a day ahead of the clock of this machine.',
    todo: 'Set the clock of the machine that is wrong. The Lease counts all the same: nobody goes by its times.',
    shows: ['log of every component at a site'],
  },
  StateFolderUnusable: {
    means: 'The state directory cannot be read or written.',
    todo: 'Check the directory that the message names, its permissions and the disk.',
    shows: ['log of the agent', 'log of every component at a site'],
  },
  ObjectNotWritten: {
    means: 'The API server does not take an object as a part of Sealane writes it.',
    todo: 'See that the definitions are as new as the parts (`DefinitionOutdated`). The log of the part has the words of the server.',
    shows: ['log of the agent', ...FOUND],
  },
  PartForbidden: {
    means: 'A part of Sealane may not do at the API server what it has to: a role or a binding of it was changed.',
    todo: 'Run `sealane join` again: it applies the roles and bindings of Sealane. The message names what is refused.',
    shows: FOUND,
  },
  IdentityMissing: {
    means: 'The Secret with the identity of this cluster is gone, and the agent may not make one.',
    todo: 'Run `sealane join` again: it makes the Secret, and the agent that runs puts its identity into it.',
    shows: FOUND,
  },
  AdmissionRefuses: {
    means:
      'An admission webhook, an admission policy or a quota refuses what a part of Sealane writes, or what a command is to install; a webhook that does not answer refuses, too.',
    todo: 'Let the service accounts of `sealane-system` past what the message names, or mend it. To install: make an exception for what the message names, or go on with `--force`.',
    shows: FOUND,
  },
  ApiServerReadOnly: {
    means: 'The API server answers, and takes no writes of a part of Sealane.',
    todo: 'Look at its etcd: whether it has used its quota (alarm NOSPACE), has a full disk, or lacks members.',
    shows: FOUND,
  },
  ObjectsNotFollowed: {
    means: 'The API server refuses to list or to watch a kind of object; the message has its words.',
    todo: 'Check the CRDs and the RBAC rules of Sealane: `sealane join` installs both again.',
    shows: API,
  },
} as const satisfies ReasonTable
