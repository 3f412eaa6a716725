/** Joining and leaving, and a member's identity in files and Secrets. */
export {
  APPROVAL_RETRY,
  type JoinAsk,
  type JoinStore,
  askToJoin,
  awaitsApproval,
  endOfIdentity,
  inOwnWords,
  joinWhenApproved,
  joinedIdentity,
  lookAtJoin,
  withdrawJoin,
} from './join.ts'
export { LEAVE_TIMEOUT_MS, askToLeave } from './leave.ts'
export {
  IDENTITY_PARTS,
  IdentityFileError,
  type IdentityStore,
  type KeptAccess,
  type MemberIdentity,
  decodeMemberIdentity,
  folderIdentity,
  readMemberIdentity,
  removeMemberIdentity,
  writeMemberIdentity,
} from './member-files.ts'
export {
  ASK_FIRST_ANNOTATION,
  NO_PROBLEM,
  REFUSED_ANNOTATION,
  type SecretAccess,
  type SecretChange,
  TOKEN_PART,
  joinProblem,
  secretIdentity,
} from './secret-identity.ts'
