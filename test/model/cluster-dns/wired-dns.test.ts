/** What a join wired in the cluster's DNS: stored on the Membership, and put back by the agent. */
import fc from 'fast-check'
import t from 'tap'
import {
  BLOCK_PATTERN,
  addForwardBlock,
  formatForwardBlock,
  removeForwardBlock,
} from '../../../model/cluster-dns/forward-block.ts'
import {
  ANNOTATION_WIRED_DNS,
  type WiredDns,
  formatWiredDns,
  planMending,
  readWiredDns,
} from '../../../model/cluster-dns/wired-dns.ts'
import { ALL, arbitraryCorefile } from '../../support/corefiles.ts'

const BLOCK = { domain: 'clusterset.local', forwardTo: '10.43.0.99' }
const COREFILE = { namespace: 'kube-system', name: 'coredns', key: 'Corefile' }

function read(text: string): WiredDns | undefined {
  return readWiredDns({ [ANNOTATION_WIRED_DNS]: text })
}

t.test('what is stored is what is read', async (t) => {
  const wired: WiredDns = {
    forwardTo: '[fd00::99]:53',
    maps: [COREFILE, { namespace: 'a', name: 'b.c', key: 'sealane.server', text: 'x\n' }],
    problems: [{ reason: 'DnsCacheOutOfReach', message: 'm' }],
  }
  t.same(read(formatWiredDns(wired)), wired)
  t.equal(readWiredDns(undefined), undefined)
  t.equal(readWiredDns({}), undefined)
})

t.test('what is not ours is no record, and a record has limits', async (t) => {
  const map = JSON.stringify(COREFILE)
  for (const text of [
    '',
    '[]',
    'null',
    '{"forwardTo":"10.0.0.1"}',
    `{"forwardTo":"10.0.0.1 {","maps":[${map}]}`,
    '{"forwardTo":"10.0.0.1","maps":[{"namespace":"../x","name":"a","key":"b"}]}',
    '{"forwardTo":"10.0.0.1","maps":[{"namespace":"a","name":"a","key":"b","text":1}]}',
  ])
    t.equal(read(text), undefined, text)
  const many = { forwardTo: '10.0.0.1', maps: Array.from({ length: 99 }, () => COREFILE), problems: [] }
  t.equal(read(JSON.stringify(many))?.maps.length, 16)
  const odd = `{"forwardTo":"10.0.0.1","maps":[],"problems":[{"reason":"NoSuchReason","message":"m"},null]}`
  t.same(read(odd)?.problems, [])
})

t.test('any text: reading never throws', async () => {
  fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => (read(text)?.maps.length ?? 0) <= 16))
})

t.test('any Corefile: a block that is lost comes back, once, and no text makes it throw', async () => {
  fc.assert(
    fc.property(fc.oneof(arbitraryCorefile, fc.string({ unit: 'binary' })), (text) => {
      const plan = planMending(COREFILE, { Corefile: text }, BLOCK)
      if (plan.state !== 'lost') return true
      const again = planMending(COREFILE, { Corefile: plan.text }, BLOCK)
      return again.state === 'holds' && removeForwardBlock(plan.text) === text && plan.text.startsWith(text)
    }),
    { numRuns: 200 },
  )
})

t.test('the admission policy takes what the agent adds, and nothing else', async (t) => {
  const pattern = new RegExp(BLOCK_PATTERN)
  for (const [name, text] of Object.entries(ALL)) {
    const added = addForwardBlock(text, BLOCK)
    t.ok(added.startsWith(text), name)
    t.match(added.slice(text.length), pattern, name)
  }
  const place = { ports: ['53', undefined], binds: ['bind 169.254.20.10 __PILLAR__DNS__SERVER__'] }
  const block = formatForwardBlock({ ...BLOCK, forwardTo: '[fd00::99]:53' }, place)
  t.match(`${block}\n`, pattern)
  for (const [title, text] of [
    ['all names', block.replace('clusterset.local:53 clusterset.local', '.:53')],
    ['one zone more', block.replace('clusterset.local:53', 'clusterset.local:53 example.org')],
    ['another plugin', block.replace('    errors', '    hosts x')],
    ['a second block', `${block}\n.:53 {\n    forward . 192.0.2.1\n}`],
    ['a block before', `.:53 {\n}\n${block}`],
    ['braces in bind', block.replace('bind 169.254.20.10', 'bind a {\n}\n')],
    ['a host name', block.replace('[fd00::99]:53', 'evil.example')],
    ['a text before the marker', `x${block}`],
    ['another comment', block.replace('Written by', 'By')],
    ['a quote that does not end', block.replace('169.254.20.10', '"')],
    ['a word that goes on in the next line', block.replace('169.254.20.10', 'a\\')],
    ['a comment in bind', block.replace('169.254.20.10', '169.254.20.10 # x')],
    ['an address to bind that is none', block.replace('169.254.20.10', '169.254.20.310')],
    ['a variable', block.replace('169.254.20.10', '$(A)')],
    ['a plugin twice', block.replace('    cache 5\n', '    cache 5\n    cache 5\n')],
    ['plugins in another order', block.replace('    errors\n    cache 5\n', '    cache 5\n    errors\n')],
    ['no errors plugin', block.replace('    errors\n', '')],
    ['bind at the end', block.replace('    loadbalance\n', '    loadbalance\n    bind 10.0.0.1\n')],
    ['a longer cache', block.replace('cache 5', 'cache 50')],
    ['a port that is none', block.replace('local:53', 'local:65536')],
    ['two upstreams', block.replace('[fd00::99]:53', '10.0.0.1 10.0.0.2')],
    ...[
      '::::',
      '[',
      '1.2.3',
      '1.2.3.4.5',
      '300.1.1.1',
      '1:2',
      '[fd00::99',
      '[10.0.0.1]:53',
      '10.0.0.1:0',
      '1::2::3',
      '::',
    ].map((odd) => [`upstream ${odd}`, block.replace('[fd00::99]:53', odd)] as const),
  ] as const) {
    t.not(text, block, `${title}: another text`)
    t.notMatch(text, pattern, title)
  }
  for (const upstream of [
    '10.43.0.99',
    '10.43.0.99:5353',
    'fd00::99',
    '::1',
    'fd00::',
    '1:2:3:4:5:6:7:8',
    '[fd00::]:53',
  ]) {
    t.match(block.replace('[fd00::99]:53', upstream), pattern, upstream)
  }
  for (const bind of ['bind lo', 'bind ::1  127.0.0.1', 'bind eth0.100\n    bind 10.0.0.1']) {
    t.match(block.replace(/bind .*/, bind), pattern, bind)
  }
})

t.test('any upstream that is an address: the admission policy takes it', async () => {
  const pattern = new RegExp(BLOCK_PATTERN)
  const upstream = fc.oneof(
    fc.ipV4(),
    fc.ipV6().filter((ip) => !ip.includes('.') && ip !== '::'),
    fc.tuple(fc.ipV4(), fc.integer({ min: 1, max: 65_535 })).map(([ip, port]) => `${ip}:${port}`),
  )
  fc.assert(
    fc.property(upstream, (forwardTo) =>
      pattern.test(formatForwardBlock({ ...BLOCK, forwardTo }, { ports: ['53'], binds: [] })),
    ),
  )
})
