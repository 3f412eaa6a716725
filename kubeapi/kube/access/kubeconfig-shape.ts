/** What a kubeconfig says, once it has been read. */
import type { Cluster, Context, User } from '@kubernetes/client-node/dist/config_types.js'
import type { Impersonation } from './impersonation.ts'

/** One or several files read together; the first that names something counts. */
export interface Kubeconfig {
  readonly paths: readonly string[]
  readonly clusters: readonly Cluster[]
  readonly users: readonly KubeconfigUser[]
  readonly contexts: readonly Context[]
  readonly currentContext: string | undefined
}

/** client-node's User, with fields that it leaves out. */
export interface KubeconfigUser extends User {
  /** Throws UserError: read only of the user who is meant. */
  readonly impersonation: () => Impersonation | undefined
  readonly tokenFile?: string | undefined
  /** Folder that the file's relative paths start from. */
  readonly folder: string
}
