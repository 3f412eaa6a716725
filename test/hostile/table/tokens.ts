/** Attacks with stolen tokens of our own parts. */
import type { AttackRow } from './row.ts'

export const TOKENS: readonly AttackRow[] = [
  {
    id: 'token-agent-kube-dns',
    tried: "With the agent's token, an EndpointSlice of ours that says it belongs to the Service kube-dns.",
    holds: "It is refused, made anew or changed later: kube-proxy never sends the cluster's DNS elsewhere.",
    against:
      'Policy `sealane-agent-slices`: slices of the agent have label kubernetes.io/service-name for derived Services only.',
  },
  {
    id: 'token-agent-services',
    tried: "Agent token: a user's Service is taken over and deleted, others made with names that nobody consented to.",
    holds: 'Each is refused, also with a selector, an external address or another type.',
    against:
      'Policy `sealane-agent-services`: label, form and name of derived Services; the Namespace consents to names.',
  },
  {
    id: 'token-agent-foreign-slices',
    tried: 'Agent token: EndpointSlices of other controllers are taken over, changed and deleted.',
    holds: 'Each is refused.',
    against: 'Policy `sealane-agent-slices`: the agent writes slices that carry its own label, before and after.',
  },
  {
    id: 'token-agent-imports',
    tried: "Agent token: a user's ServiceImport is taken over and deleted, one without our label made.",
    holds: 'Each is refused.',
    against:
      'Policy `sealane-agent-imports`: the agent writes ServiceImports that carry its own label, before and after.',
  },
  {
    id: 'token-agent-foreign-names',
    tried: 'Agent token: EndpointSlices with no cluster name, or with a wrong name.',
    holds: 'Each is refused.',
    against: 'Policy `sealane-agent-slices`: a slice of the agent is named after its service and its cluster.',
  },
  {
    id: 'token-agent-import-ips',
    tried: "Agent token: a ServiceImport with the API server's address, or with a changed range.",
    holds: 'Each is refused: nodes send nothing elsewhere but what is called by a clusterset IP.',
    against:
      'Policies `sealane-agent-import-ips` and `sealane-agent-membership`: the range of the Membership, which stays.',
  },
  {
    id: 'token-agent-guarded-namespaces',
    tried: 'Agent token: imports in namespaces of the platform, `default`, and Sealane.',
    holds: 'Each is refused, unless the site file allows that namespace; removing is let through.',
    against: 'Policy `sealane-agent-namespaces`: the namespaces of `guardedNamespace()`, and the site file.',
  },
  {
    id: 'token-agent-lanes',
    tried: "With the agent's token, the Leases of lanes are taken, given away and ended.",
    holds: 'Each is refused: only gateways decide which of them serves a lane.',
    against: 'Policy `sealane-agent-leases`: the agent writes its election and the Leases of other clusters.',
  },
  {
    id: 'token-agent-leaves',
    tried: "With the agent's token, somebody makes the cluster leave its clusterset.",
    holds: 'It is refused, and lanes stay.',
    against:
      'Policies `sealane-agent-membership` and `sealane-membership`: only an administrator may ask for it, or end it.',
  },
  {
    id: 'token-agent-properties',
    tried: "With the agent's token, a ClusterProperty that is none of ours.",
    holds: 'It is refused.',
    against: 'Policy `sealane-agent-properties`: the agent makes the two properties of the membership.',
  },
  {
    id: 'token-without-node',
    tried: 'Gateway or routeagent token without a node: objects and lanes of any node are written.',
    holds: 'Each is refused.',
    against:
      'Policies `sealane-node-writes` and `sealane-lane-leases`: a token that names no node may write for no node.',
  },
  {
    id: 'token-of-another-node',
    tried: 'Gateway or routeagent token: objects of another node are written and removed.',
    holds: 'Each is refused.',
    against: 'Policy `sealane-node-writes`: a pod writes the objects of the node that its token names.',
  },
  {
    id: 'token-of-another-cluster',
    tried: "With a gateway's token, an Endpoint of another cluster is made and removed.",
    holds: 'Each is refused.',
    against:
      'Policies `sealane-endpoint-cluster` and `sealane-endpoint-removal`: a gateway speaks for its own cluster.',
  },
  {
    id: 'token-beyond-its-work',
    tried: "Token of each part: Secrets, roles, pods, nodes, policies, cluster DNS, others' objects.",
    holds: 'Each is refused.',
    against: '`install/policies/member-access.ts`: each role names what its part reads and writes, and no more.',
  },
  {
    id: 'token-dns-writes',
    tried: 'With the token of dns, anything is written that any part of ours writes.',
    holds: 'Each is refused.',
    against: '`install/policies/member-access.ts`: dns reads.',
  },
  {
    id: 'token-broker',
    tried: "With the token of the broker's account, anything is read.",
    holds: 'Each is refused, and its pod has no token to steal.',
    against: '`install/plan-broker.ts`: the account has no role, and its token is not mounted.',
  },
  {
    id: 'token-of-an-editor',
    tried: 'An editor of a namespace writes imports, imported endpoints and memberships.',
    holds: 'Each is refused; exports in that namespace are taken.',
    against:
      '`install/policies/member-access.ts`: the roles added to view, edit and admin give exports, and else reading.',
  },
  {
    id: 'part-lies-on-its-page',
    tried: 'A compromised pod of Sealane puts lies, control characters and megabytes on its status page.',
    holds:
      'Who diagnoses gets a bounded text without control characters that says whose word it is, and all that is true of ' +
      'the others is still named. Of the broker the agents speak alone.',
    against:
      '`explain/facts/shapes.ts` and `explain/facts/read-facts.ts`: sizes and shapes; each text is made printable.',
  },
]
