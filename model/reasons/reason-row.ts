/** The fields of a row in the table of reasons (model/reasons/reasons.ts). */

/** gRPC status of a refusal by the broker, in its own spelling. */
export type RefusalCode =
  | 'InvalidArgument'
  | 'Unauthenticated'
  | 'PermissionDenied'
  | 'AlreadyExists'
  | 'ResourceExhausted'
  | 'FailedPrecondition'

/** Where users meet a reason. A metric has it as a label, a log line in its field `reason`. */
export type ReasonPlace =
  | `condition ${string} of ${string}`
  | `event on ${string}`
  | `alert Sealane${string}`
  | `metric sealane_${string}`
  | `counter of table ${string}`
  | `status of ${string}`
  | 'log of the broker'
  | 'log of the relay'
  | 'log of the agent'
  | 'log of the gateway'
  | 'log of the routeagent'
  | 'log of dns'
  | 'log of every component in a Kubernetes cluster'
  | 'log of every component at a site'
  | 'refusal by the broker'
  | 'output of the command'

export interface ReasonRow {
  /** One sentence. */
  readonly means: string
  /** One or two sentences; `Nothing.` if no action is needed. */
  readonly todo: string
  /** The same at a site without Kubernetes, where it differs: it has no pods, labels are in files, systemd runs parts. */
  readonly todoAtSite?: string
  readonly shows: readonly ReasonPlace[]
  /** Set if the name is defined by the standard, with the same meaning. */
  readonly standard?: 'KEP-1645' | 'KEP-5939'
  /** Set for a refusal by the broker. */
  readonly status?: RefusalCode
}

export type ReasonTable = Readonly<Record<string, ReasonRow>>
