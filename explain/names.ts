/** Names that an installation gives, as its objects show them (install/names.ts says them to who installs). */

export const AGENT_LEASE = 'sealane-agent'
/** The Secret that the agent keeps the identity of the cluster in. */
export const IDENTITY_SECRET = { kind: 'Secret', namespace: 'sealane-system', name: 'sealane-identity' } as const
/** Label of pods and workloads that says which part they are. */
export const LABEL_COMPONENT = 'app.kubernetes.io/component'

/** The parts of a member, and what runs each in a Kubernetes cluster. */
export const PART_WORKLOADS = {
  agent: 'Deployment',
  dns: 'Deployment',
  gateway: 'DaemonSet',
  routeagent: 'DaemonSet',
} as const
export type MemberPart = keyof typeof PART_WORKLOADS
export const MEMBER_PARTS = Object.keys(PART_WORKLOADS) as readonly MemberPart[]

/** What a finding about a part as a whole is about. */
export function workloadSubject(part: MemberPart): { kind: string; namespace: string; name: string } {
  return { kind: PART_WORKLOADS[part], namespace: 'sealane-system', name: workloadName(part) }
}

export function workloadName(part: MemberPart): string {
  return `sealane-${part}`
}

/** Where pods of dns listen; their Service has 53. */
export const DNS_POD_PORT = 5353
