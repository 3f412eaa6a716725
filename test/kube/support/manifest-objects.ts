/** Objects of Sealane's kinds, right ones and wrong ones, and what an API server should say of them. */
import type { KubeObject } from './kube-request.ts'

function own(kind: string, name: string, spec: object): KubeObject {
  return { apiVersion: 'sealane.io/v1alpha1', kind, metadata: { name }, spec }
}

export function membership(change: object): KubeObject {
  const ranges = { globalRange: '244.0.0.0/8', clustersetIpRange: '245.0.0.0/16' }
  return own('Membership', 'self', {
    clusterId: 'milano',
    phase: 'joined',
    clusterset: 'default',
    ...ranges,
    ...change,
  })
}

export function clusterObject(change: object, name = 'milano'): KubeObject {
  const cidrs = { podCIDRs: ['10.42.0.0/16'], serviceCIDRs: ['10.43.0.0/16', 'fd00:1::/112'], globalCIDRs: [] }
  return own('Cluster', name, { id: 'milano', index: 1, ...cidrs, labels: { region: 'eu' }, ...change })
}

export function endpoint({
  name = 'milano.n1-lane0',
  ...change
}: { name?: string; [field: string]: unknown } = {}): KubeObject {
  const [id = ''] = name.split('.')
  const candidates = [{ kind: 'public', address: '192.0.2.10', port: 4500 }]
  const publicKey = `${'A'.repeat(43)}=`
  return own('Endpoint', name, { cluster: id, node: 'n1', lane: 0, publicKey, candidates, capabilities: [], ...change })
}

/** `want` is a part of the refusal; '' where the object is taken. */
export const SCHEMA_ROWS: readonly { readonly object: KubeObject; readonly want: string }[] = [
  { object: clusterObject({}), want: '' },
  { object: clusterObject({}, 'roma'), want: 'metadata.name is the cluster id' },
  { object: clusterObject({ id: 'Milano' }), want: 'spec.id' },
  { object: clusterObject({ podCIDRs: ['10.42.0.1/16'] }), want: 'expected a range such as 10.42.0.0/16' },
  { object: clusterObject({ podCIDRs: ['10.42.0.0'] }), want: 'expected a range such as 10.42.0.0/16' },
  { object: clusterObject({ globalCIDRs: ['244.0.0.0/16'] }), want: '' },
  {
    object: clusterObject({ globalCIDRs: ['244.0.0.0/16', '244.1.0.0/16'] }),
    want: 'spec.globalCIDRs is empty or has one range per pod range',
  },
  { object: clusterObject({ labels: undefined }), want: 'spec.labels' },
  { object: endpoint(), want: '' },
  { object: endpoint({ name: 'milano.n1.example.org-lane255', node: 'n1.example.org', lane: 255 }), want: '' },
  { object: endpoint({ name: 'milano.n1-lane256', lane: 256 }), want: 'spec.lane' },
  { object: endpoint({ node: 'n2' }), want: 'metadata.name is <cluster>.<node>-lane<number>' },
  ...['lane1', 'lane00', 'lane', 'lane-0', 'lane0.x', 'lane0-milano.n1-lane0'].map((end) => ({
    object: endpoint({ name: `milano.n1-${end}` }),
    want: 'metadata.name is <cluster>.<node>-lane<number>',
  })),
  { object: endpoint({ name: 'milano.n1-lane25', lane: 2 }), want: 'metadata.name is <cluster>.<node>-lane<number>' },
  { object: endpoint({ publicKey: 'short' }), want: 'spec.publicKey' },
  { object: endpoint({ publicKey: `${'A'.repeat(42)}B=` }), want: 'spec.publicKey' },
  {
    object: endpoint({ candidates: [{ kind: 'public', address: 'example.org', port: 1 }] }),
    want: 'expected an address such as 192.0.2.10',
  },
  {
    object: endpoint({ candidates: [{ kind: 'guess', address: '192.0.2.1', port: 1 }] }),
    want: 'spec.candidates[0].kind',
  },
  { object: membership({ observedAddress: '2001:db8::1' }), want: '' },
  { object: membership({ phase: 'maybe' }), want: 'spec.phase' },
  { object: { ...membership({}), metadata: { name: 'other' } }, want: 'metadata.name is self' },
  { object: own('RouteAgent', 'n1', {}), want: '.spec: field not declared in schema' },
]
