/** The order in which nodes are taken as gateways, and which nodes may become one. */
import fc from 'fast-check'
import t from 'tap'
import {
  type GatewayTraits,
  bestGateways,
  gatewayTraits,
  isChosenGateway,
  mayBecomeGateway,
} from '../../../model/lanes/gateway-choice.ts'
import { leavingReason, removalReason } from '../../../model/lanes/gateway-node.ts'
import type { Node } from '../../../model/objects.ts'
import { internalIps, nodeObject } from '../../support/objects/node-objects.ts'

const node = (labels: Readonly<Record<string, string>> = {}, taints: readonly string[] = []): Node =>
  nodeObject('n1', {
    metadata: { labels: { 'kubernetes.io/os': 'linux', ...labels } },
    spec: {
      taints: taints.map((taint) => ({ key: taint.split('=')[0] ?? '', value: taint.split('=')[1] ?? '' })),
    },
    status: internalIps('10.0.0.1'),
  })

const SPOT: readonly (readonly [string, string])[] = [
  ['eks.amazonaws.com/capacityType', 'SPOT'],
  ['karpenter.sh/capacity-type', 'spot'],
  ['cloud.google.com/gke-spot', 'true'],
  ['cloud.google.com/gke-preemptible', 'true'],
  ['cloud.google.com/gke-provisioning', 'spot'],
  ['kubernetes.azure.com/scalesetpriority', 'spot'],
  ['node.kubernetes.io/lifecycle', 'spot'],
  ['machine.openshift.io/interruptible-instance', ''],
  ['oci.oraclecloud.com/oke-is-preemptible', 'true'],
  ['yandex.cloud/preemptible', 'true'],
  ['spot.io/node-lifecycle', 'spot'],
  ['kops.k8s.io/instance-lifecycle', 'spot'],
  ['aws.amazon.com/spot', 'true'],
  ['example.org/spot-instance', 'true'],
  ['cloud.example.org/node.preemptible', 'true'],
  ['lifecycle', 'Ec2Spot'],
  ['node-lifecycle', 'spot'],
  ['spotInstance', 'true'],
  ['cluster.x-k8s.io/interruptible', ''],
  ['node-role.kubernetes.io/spot', ''],
]
const STAYS: readonly (readonly [string, string])[] = [
  ['eks.amazonaws.com/capacityType', 'ON_DEMAND'],
  ['eks.amazonaws.com/capacityType', 'CAPACITY_BLOCK'],
  ['karpenter.sh/capacity-type', 'on-demand'],
  ['karpenter.sh/capacity-type', 'reserved'],
  ['cloud.google.com/gke-spot', 'false'],
  ['cloud.google.com/gke-provisioning', 'standard'],
  ['kubernetes.azure.com/scalesetpriority', 'regular'],
  ['node.kubernetes.io/lifecycle', 'normal'],
  ['yandex.cloud/preemptible', 'false'],
  ['spot.io/node-lifecycle', 'od'],
  ['example.org/spotless', 'true'],
  ['spot', 'true'],
  ['lifecycle', 'OnDemand'],
  ['node-lifecycle', 'on-demand'],
  ['spotInstance', 'false'],
]

t.test('machines that may be taken away, by their labels and taints', async (t) => {
  for (const [key, value] of SPOT) {
    t.ok(gatewayTraits(node({ [key]: value })).transient, `${key}=${value}`)
    t.ok(gatewayTraits(node({}, [`${key}=${value}`])).transient, `taint ${key}=${value}`)
  }
  for (const [key, value] of STAYS)
    t.equal(gatewayTraits(node({ [key]: value })).transient, undefined, `${key}=${value}`)
  t.equal(
    gatewayTraits(node({ 'karpenter.sh/capacity-type': 'spot' })).transient,
    'label karpenter.sh/capacity-type=spot',
  )
  t.ok(gatewayTraits(node({}, ['DeletionCandidateOfClusterAutoscaler=1764'])).transient, 'the autoscaler considers it')
  t.ok(gatewayTraits(node({}, ['spotInstance=true'])).transient)
  t.ok(gatewayTraits(node({}, ['oci.oraclecloud.com/oke-is-preemptible=present'])).transient)
})

interface Row extends Partial<GatewayTraits> {
  readonly node: string
}
const traits = (row: Row): GatewayTraits => ({
  ...{ isLabelled: false, publicAddress: undefined, isControlPlane: false, transient: undefined, zone: undefined },
  ...row,
})
const order = (...rows: readonly Row[]): string =>
  bestGateways(rows.map(traits))
    .map((one) => one.node)
    .join(' ')

t.test('the order', async (t) => {
  const spot = { transient: 'spot' }
  const called = { publicAddress: '198.51.100.7' }
  t.equal(
    order(
      { node: 'a-spot-control', ...spot, isControlPlane: true },
      { node: 'b-spot', ...spot },
      { node: 'c-spot-called', ...spot, ...called },
      { node: 'd-control', isControlPlane: true },
      { node: 'e-worker' },
      { node: 'f-control-called', isControlPlane: true, ...called },
      { node: 'g-called', ...called },
      { node: 'h-labelled', isLabelled: true, isControlPlane: true, ...spot },
    ),
    'h-labelled g-called f-control-called e-worker d-control c-spot-called b-spot a-spot-control',
  )
})

t.test('one of each zone', async (t) => {
  const rows = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'].map((name) => ({ node: name, zone: name.slice(0, 1) }))
  t.equal(order(...rows), 'a1 b1 c1 a2 b2 a3')
  const labelled = { node: 'z', zone: 'a', isLabelled: true }
  t.equal(order(...rows, labelled), 'z b1 c1 a1 b2 a2 a3', 'the zones of labelled ones count')
  t.equal(
    order({ node: 'a1', zone: 'a' }, { node: 'a2', zone: 'a' }, { node: 'b', zone: 'b', transient: 'spot' }),
    'a1 a2 b',
  )
})

t.test('from the second one on, an unused zone counts for more than a public address', async (t) => {
  const called = { publicAddress: '198.51.100.7' }
  const [a1, a2] = [
    { node: 'a1', zone: 'a', ...called },
    { node: 'a2', zone: 'a', ...called },
  ]
  t.equal(order(a1, a2, { node: 'b1', zone: 'b' }), 'a1 b1 a2')
  t.equal(order(a1, { node: 'b1', zone: 'b' }, { node: 'b2', zone: 'b', ...called }), 'a1 b2 b1')
  t.equal(order(a1, a2, { node: 'b1', zone: 'b', transient: 'spot' }), 'a1 a2 b1', 'not a spot machine')
  t.equal(order(a1, a2, { node: 'b1', zone: 'b', isControlPlane: true }), 'a1 a2 b1', 'not the control plane')
})

t.test('any nodes: each once, and none before a better one', async () => {
  const arbitrary = fc.uniqueArray(
    fc.record({
      node: fc.stringMatching(/^[a-z]{1,3}$/),
      isLabelled: fc.boolean(),
      publicAddress: fc.constantFrom(undefined, '198.51.100.7'),
      isControlPlane: fc.boolean(),
      transient: fc.constantFrom(undefined, 'spot'),
      zone: fc.constantFrom(undefined, 'a', 'b'),
    }),
    { selector: (one) => one.node, maxLength: 12 },
  )
  fc.assert(
    fc.property(arbitrary, (all) => {
      const sorted = bestGateways(all)
      const names = (list: readonly GatewayTraits[]): string =>
        list
          .map((one) => one.node)
          .sort()
          .join()
      const bits = (...all: readonly boolean[]): string => all.map(Number).join('')
      const kind = (one: GatewayTraits): string => bits(!one.isLabelled, one.transient !== undefined)
      const rank = (one: GatewayTraits): string =>
        `${kind(one)}${bits(one.publicAddress === undefined, one.isControlPlane)}`
      const used = (at: number, zone: string | undefined): number =>
        sorted.slice(0, at).filter((one) => one.zone === zone).length
      const kinds = sorted.map(kind)
      return (
        names(sorted) === names(all) &&
        kinds.join() === [...kinds].sort().join() &&
        sorted.every((one, at) => {
          const best = [...sorted.slice(at)].sort((a, b) => (rank(a) < rank(b) ? -1 : 1))[0] ?? one
          if (rank(one) === rank(best)) return true
          // A better one waits only where its zone has more of them already.
          return one.isControlPlane === best.isControlPlane && used(at, one.zone) < used(at, best.zone)
        })
      )
    }),
  )
})

t.test('who is being removed, who only leaves, and who may take over', async (t) => {
  const removing = [
    'ToBeDeletedByClusterAutoscaler=1764',
    'karpenter.sh/disrupted',
    'karpenter.sh/disruption=disrupting',
    'node.kubernetes.io/out-of-service=nodeshutdown',
    'aws-node-termination-handler/spot-itn',
    'aws-node-termination-handler/asg-lifecycle-termination',
    'cloud.google.com/impending-node-termination',
  ]
  for (const taint of removing) {
    t.ok(removalReason(node({}, [taint])), taint)
    t.ok(leavingReason(node({}, [taint])), `${taint}: its gateway drains`)
    t.notOk(mayBecomeGateway(node({}, [taint])), taint)
  }
  const deleted = node()
  const going = { ...deleted, metadata: { ...deleted.metadata, deletionTimestamp: '2026-11-29T10:00:00Z' } }
  t.equal(removalReason(going), 'the node is being deleted')

  const cordoned: Node = { ...node(), spec: { unschedulable: true } }
  for (const away of [
    node({}, ['node.kubernetes.io/not-ready']),
    node({}, ['node.kubernetes.io/unreachable']),
    node({}, ['node.cloudprovider.kubernetes.io/shutdown']),
    cordoned,
    node({ 'sealane.io/drain': '' }),
  ]) {
    t.equal(removalReason(away), undefined, 'it is not being removed')
    t.notOk(mayBecomeGateway(away), 'and does not take over')
  }
  t.equal(removalReason(node({}, ['DeletionCandidateOfClusterAutoscaler'])), undefined, 'a candidate only')
  t.ok(mayBecomeGateway(node({}, ['DeletionCandidateOfClusterAutoscaler', 'dedicated=db'])))
  t.notOk(mayBecomeGateway(node({ 'sealane.io/gateway': 'true' })), 'it is one')
  t.notOk(mayBecomeGateway(node({ type: 'virtual-kubelet' })), 'no machine')
  t.notOk(mayBecomeGateway({ ...node(), status: internalIps('fd00::1') }), 'no IPv4')
})

t.test('who was chosen', async (t) => {
  const chosen = (label: string | undefined, by: string | undefined): boolean =>
    isChosenGateway(
      nodeObject('n1', {
        metadata: {
          ...(label === undefined ? {} : { labels: { 'sealane.io/gateway': label } }),
          ...(by === undefined ? {} : { annotations: { 'sealane.io/gateway-chosen-by': by } }),
        },
      }),
    )
  t.ok(chosen('true', 'join'))
  t.ok(chosen('true', 'agent'))
  t.notOk(chosen('0', 'join'), 'a user gave it a lane number')
  t.notOk(chosen('true', undefined), 'a user labelled it')
  t.notOk(chosen('true', 'me'))
  t.notOk(chosen(undefined, 'join'), 'a user took the label away')
  t.notOk(chosen('yes', 'join'))
})
