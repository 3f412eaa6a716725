/**
 * Where a member keeps its identity: a folder on disk, or a Secret of a real cluster
 * (protocol/identity/secret-identity.ts).
 */
import { type MemberIdentity, readMemberIdentity, removeMemberIdentity, writeMemberIdentity } from './member-files.ts'

export interface IdentityStore {
  /** What messages call it: the folder, or the Secret's namespace and name. */
  readonly place: string
  /** Undefined when there is none: not joined. Throws IdentityFileError when what is there cannot be read. */
  read(): Promise<MemberIdentity | undefined>
  /** All or nothing. Throws IdentityFileError. */
  write(identity: MemberIdentity): Promise<void>
  remove(): Promise<void>
}

/** `<state>/identity` of a site without Kubernetes. */
export function folderIdentity(directory: string): IdentityStore {
  return {
    place: directory,
    read: () => readMemberIdentity(directory),
    write: (identity) => writeMemberIdentity(directory, identity),
    remove: () => removeMemberIdentity(directory),
  }
}
