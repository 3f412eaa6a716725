/** Which pods of a node are outside the pod CIDRs of their cluster, and how steady the report of them is. */
import fc from 'fast-check'
import t from 'tap'
import { outsidePodsOf } from '../../../model/addresses/outside-pods.ts'
import type { Pod } from '../../../model/objects.ts'
import { parsePrefix } from '../../../model/values/ip.ts'

type Status = NonNullable<Pod['status']>

let serial = 0

function pod(ips: readonly string[], spec: Pod['spec'] = {}, status: Status = {}): Pod {
  serial += 1
  const [podIP] = ips
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `p${serial}`, namespace: 'shop' },
    spec: { nodeName: 'w1', ...spec },
    status: {
      phase: 'Running',
      ...(podIP === undefined ? {} : { podIP }),
      podIPs: ips.map((ip) => ({ ip })),
      ...status,
    },
  }
}

const STATED = { podCIDRs: ['10.42.0.0/16'].map((text) => parsePrefix(text)), nodes: new Set(['192.168.1.1']) }

function outside(pods: readonly Pod[], before: readonly string[] = []): readonly string[] {
  return outsidePodsOf(pods, { node: 'w1', before, ...STATED })
}

t.test('which pods are outside', (t) => {
  const rows: [name: string, pod: Pod, want: readonly string[]][] = [
    ['inside', pod(['10.42.0.5']), []],
    ['outside, behind no Service', pod(['10.50.0.5']), ['10.50.0.5']],
    [
      'by podIP alone, as of old kubelets',
      { ...pod([]), status: { phase: 'Running', podIP: '10.50.0.5' } },
      ['10.50.0.5'],
    ],
    ['on the host network', pod(['10.50.0.5'], { hostNetwork: true }), []],
    ['with the address of the node', pod(['192.168.1.1']), []],
    ['of another node', pod(['10.50.0.5'], { nodeName: 'w2' }), []],
    ['not yet scheduled', { ...pod(['10.50.0.5']), spec: {} }, []],
    ['succeeded', pod(['10.50.0.5'], {}, { phase: 'Succeeded' }), []],
    ['failed', pod(['10.50.0.5'], {}, { phase: 'Failed' }), []],
    ['without an address yet', pod([]), []],
    ['of a family that the cluster does not offer', pod(['10.42.0.5', 'fd00:50::5']), []],
    ['no address that others could use', pod(['127.0.0.1', '169.254.1.1']), []],
  ]
  for (const [name, one, want] of rows) t.strictSame(outside([one]), want, name)
  t.end()
})

t.test('further networks of a pod, as Multus notes them in an annotation, do not count', (t) => {
  const one = pod(['10.42.0.5'])
  const networks = JSON.stringify([{ name: 'storage', ips: ['10.99.0.5'] }])
  const annotations = { 'k8s.v1.cni.cncf.io/network-status': networks }
  t.strictSame(outside([{ ...one, metadata: { ...one.metadata, annotations } }]), [])
  t.end()
})

t.test('a rollout changes nothing: one address of each network, and it stays while a pod has it', (t) => {
  const first = outside(['10.50.0.9', '10.50.0.5', '10.50.7.7'].map((ip) => pod([ip])))
  t.strictSame(first, ['10.50.0.5', '10.50.7.7'])
  const next = ['10.50.0.4', '10.50.0.5', '10.50.7.7', '10.50.7.6'].map((ip) => pod([ip]))
  t.strictSame(outside(next, first), first)
  t.strictSame(outside([pod(['10.50.0.4'])], first), ['10.50.0.4'])
  t.end()
})

t.test('eight at most, and a further network takes the place of none', (t) => {
  const many = Array.from({ length: 12 }, (_, i) => `172.20.${i + 10}.1`)
  const pods = many.map((ip) => pod([ip]))
  const first = outside(pods)
  t.strictSame(first, many.slice(0, 8))
  t.strictSame(outside([...pods, pod(['10.50.0.1'])], first), first)
  t.end()
})

t.test('whatever pods have: sorted by nothing but their addresses, and never more than eight', (t) => {
  const ip = fc.oneof(fc.ipV4(), fc.ipV6(), fc.string({ unit: 'binary' }))
  fc.assert(
    fc.property(fc.array(fc.array(ip, { maxLength: 3 }), { maxLength: 30 }), fc.nat(), (all, seed) => {
      const pods = all.map((ips) => pod(ips))
      const shuffled = pods.map((one, i) => ({ one, key: (i * 7919 + seed) % 101 })).sort((a, b) => a.key - b.key)
      const found = outside(pods)
      return found.length <= 8 && outside(shuffled.map(({ one }) => one)).join() === found.join()
    }),
  )
  t.end()
})
