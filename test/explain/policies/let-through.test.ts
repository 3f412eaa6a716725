/** What NetworkPolicies allow, compared with a model that checks each address and each label separately. */
import assert from 'node:assert/strict'
import fc from 'fast-check'
import t from 'tap'
import {
  type Prefix,
  addressBits,
  containsAddress,
  formatPrefix,
  parsePrefix,
  prefixOf,
} from '../../../model/values/ip.ts'
import {
  type Direction,
  type PolicyRule,
  type Selected,
  addressesOf,
  isAbout,
  letThrough,
  meets,
  opens,
  rulesOf,
  selects,
  selectsAll,
} from '../../../explain/packet-filter/network-policy.ts'

/** Prefixes of 256 addresses of each family, few enough to check each of them. */
const NETWORKS = [parsePrefix('10.42.0.0/24'), parsePrefix('fd00:10:42::/120')]
const prefix = fc
  .tuple(fc.constantFrom(...NETWORKS), fc.nat(255), fc.integer({ min: 0, max: 8 }))
  .map(([{ family, value }, low, bits]) => {
    return prefixOf({ family, value: value + BigInt(low) }, addressBits(family) - bits)
  })
/** Peers that are selected by labels. */
const OWN_PODS: object = { namespaceSelector: {}, podSelector: {} }
const block = fc.record({ cidr: prefix, except: fc.array(prefix, { maxLength: 4 }) })

function rule(blocks: readonly { readonly cidr: Prefix; readonly except: readonly Prefix[] }[]): PolicyRule {
  const peers = blocks.map(({ cidr, except }) => {
    return { ipBlock: { cidr: formatPrefix(cidr), except: except.map(formatPrefix) } }
  })
  // A rule without peers would allow every source.
  return { lets: addressesOf([...peers, OWN_PODS]), ports: [] }
}

t.test('blocks and their exceptions: what is left of each address', async (t) => {
  const seen = { let: 0, kept: 0 }
  fc.assert(
    fc.property(fc.array(fc.array(block, { maxLength: 3 }), { maxLength: 3 }), prefix, (rules, range) => {
      const size = 1n << BigInt(addressBits(range.family) - range.length)
      const all = Array.from({ length: Number(size) }, (_, i) => ({ ...range, value: range.value + BigInt(i) }))
      const isLet = all.some((address) =>
        rules.flat().some(({ cidr, except }) => {
          return containsAddress(cidr, address) && !except.some((one) => containsAddress(one, address))
        }),
      )
      assert.equal(meets(letThrough(rules.map(rule)), range), isLet)
      seen[isLet ? 'let' : 'kept'] += 1
    }),
    { numRuns: 1000 },
  )
  t.ok(seen.let > 50 && seen.kept > 50, JSON.stringify(seen))
})

t.test('texts of blocks', async (t) => {
  const lets = (cidr: string, range: string, except?: string[]): boolean =>
    meets(addressesOf([{ ipBlock: { cidr, except } }]), parsePrefix(range))
  const rows: readonly (readonly [want: boolean, cidr: string, range: string, except?: string[]])[] = [
    [true, '0.0.0.0/0', '10.52.0.0/16'],
    [false, '0.0.0.0/0', 'fd52::/48'],
    [true, '::/0', 'fd52::/48'],
    [false, '0.0.0.0/0', '10.52.0.0/16', ['10.0.0.0/8']],
    [true, '0.0.0.0/0', '10.52.0.0/16', ['10.52.0.0/17']],
    [false, '0.0.0.0/0', '10.52.0.0/16', ['10.52.0.0/17', '10.52.128.0/17']],
    [true, '10.52.7.9/32', '10.52.0.0/16'],
    [false, '10.42.0.0/16', '10.52.0.0/16'],
    [false, '10.52.0.0/16', '10.52.0.0/16', ['10.52.0.0/16']],
    [true, '10.52.1.2/16', '10.52.9.0/24'],
    [true, 'nonsense', '10.52.0.0/16'],
    [true, '10.52.0.0/33', '10.52.0.0/16'],
    [true, '0.0.0.0/0', '10.52.0.0/16', ['nonsense', '10.0.0.0/']],
    [true, '::/0', 'fd52::/48', ['fd52::/49']],
  ]
  for (const [want, cidr, range, except] of rows) {
    t.equal(lets(cidr, range, except), want, `${cidr} less ${String(except)}: ${range}`)
  }
  const many = Array.from({ length: 201 }, () => ({ ipBlock: { cidr: '10.42.0.0/16' } }))
  t.equal(addressesOf(many), 'any', 'so many are not looked at')
  const half: PolicyRule = { lets: addressesOf(many.slice(101)), ports: [] }
  t.not(letThrough([half, half]), 'any')
  t.equal(letThrough([half, half, half]), 'any', 'nor of several rules')
  t.equal(addressesOf([]), 'any', 'nobody is named: everybody')
  t.same(addressesOf([OWN_PODS]), [])
  t.same(letThrough([]), [])
  t.equal(letThrough([half, { lets: 'any', ports: [] }]), 'any')
})

t.test('which directions a policy is about, and the rules of several', async (t) => {
  const policy = (spec: object | undefined) => ({ metadata: { name: 'x', namespace: 'shop' }, spec }) as never
  const rows: readonly (readonly [spec: object | undefined, about: readonly Direction[]])[] = [
    [undefined, ['Ingress']],
    [{}, ['Ingress']],
    [{ egress: [] }, ['Ingress']],
    [{ egress: [{}] }, ['Ingress', 'Egress']],
    [{ policyTypes: ['Egress'] }, ['Egress']],
    [{ policyTypes: ['Ingress'], egress: [{}] }, ['Ingress']],
  ]
  for (const [spec, about] of rows) {
    const found = (['Ingress', 'Egress'] as const).filter((direction) => isAbout(policy(spec), direction))
    t.same(found, about, JSON.stringify(spec))
  }
  const both = [policy({ ingress: [{}], policyTypes: ['Ingress'] }), policy({ ingress: [{}], policyTypes: ['Egress'] })]
  t.same(
    both.map((one) => rulesOf(one, 'Ingress')),
    [[{ lets: 'any', ports: [] }], []],
  )
})

t.test('ports', async (t) => {
  const rows: readonly (readonly [want: boolean, ports: PolicyRule['ports'], port: number | string])[] = [
    [true, [], 8080],
    [true, [{}], 8080],
    [true, [{ port: 8080 }], 8080],
    [false, [{ port: 80 }], 8080],
    [true, [{ port: 80 }, { protocol: 'TCP', port: 8080 }], 8080],
    [false, [{ protocol: 'UDP', port: 8080 }], 8080],
    [false, [{ protocol: 'UDP' }], 8080],
    [true, [{ port: 8000, endPort: 8080 }], 8080],
    [false, [{ port: 8000, endPort: 8079 }], 8080],
    [false, [{ port: 8081, endPort: 9000 }], 8080],
    [true, [{ port: 'http' }], 8080],
    [true, [{ port: 8080 }], 'http'],
    [true, [{ port: 'http' }], 'http'],
    [false, [{ port: 'metrics' }], 'http'],
  ]
  for (const [want, ports, port] of rows) {
    t.equal(opens({ lets: [], ports }, { protocol: 'TCP', port }), want, `${JSON.stringify(ports)} at ${port}`)
  }
})

const keys: fc.Arbitrary<string> = fc.constantFrom('app', 'tier', 'toString')
const value = fc.constantFrom('a', 'b')
const labels = fc.dictionary(keys, value)
const selector = fc.record(
  {
    matchLabels: labels,
    matchExpressions: fc.array(
      fc.record({
        key: keys,
        operator: fc.constantFrom('In', 'NotIn', 'Exists', 'DoesNotExist'),
        values: fc.uniqueArray(value),
      }),
      { maxLength: 3 },
    ),
  },
  { requiredKeys: [] },
)

type Selector = typeof selector extends fc.Arbitrary<infer T> ? T : never

/** Matches as Kubernetes does, for a pod with exactly these labels. */
function matches(one: Selector, pod: Readonly<Record<string, string>>): boolean {
  const has = (key: string): boolean => Object.hasOwn(pod, key)
  return (
    Object.entries(one.matchLabels ?? {}).every(([key, want]) => has(key) && pod[key] === want) &&
    (one.matchExpressions ?? []).every(({ key, operator, values }) => {
      const isIn = has(key) && values.includes(pod[key] as 'a')
      return { In: isIn, NotIn: !isIn, Exists: has(key), DoesNotExist: !has(key) }[operator]
    })
  )
}

t.test('which pods a selector is about, with all labels and with some', async (t) => {
  const seen: Record<Selected, number> = { yes: 0, maybe: 0, no: 0 }
  fc.assert(
    fc.property(selector, labels, labels, (one, known, others) => {
      const isMatch = matches(one, known)
      assert.equal(selects(one, { labels: known, isWhole: true }), isMatch ? 'yes' : 'no')
      const partly = selects(one, { labels: known, isWhole: false })
      seen[partly] += 1
      const whole = matches(one, { ...others, ...known })
      if (partly !== 'maybe') assert.equal(partly === 'yes', whole, 'whatever else the pod has')
      if (selectsAll(one)) assert.equal(partly, 'yes')
    }),
    { numRuns: 1000 },
  )
  for (const count of Object.values(seen)) t.ok(count > 30, JSON.stringify(seen))
  const odd = { matchExpressions: [{ key: 'app', operator: 'Gt', values: ['1'] }] }
  t.equal(selects(odd, { labels: { app: '2' }, isWhole: true }), 'maybe', 'of a later release')
  t.ok(selectsAll(null) && selectsAll({ matchLabels: {} }))
})
