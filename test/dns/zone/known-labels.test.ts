/** The fast path gives the same answer as the slow path to every question. */
import fc from 'fast-check'
import t from 'tap'
import { OWN_PROCESS } from '../../../dns/clients/clients.ts'
import { answer } from '../../../dns/zone/answer.ts'
import { KnownLabels, NO_SERVICE, isServiceName, labelsHash } from '../../../dns/zone/service-index.ts'
import { HEADER_LENGTH } from '../../../dns/message/wire.ts'
import { parseDnsName } from '../../../model/dns-name.ts'
import { answerAtOnce, newPipeline } from '../pipeline-fixture.ts'
import { decode, nameBytes, query } from '../wire.ts'
import { clusterSetIp, syncedIndex, workedExamples } from '../zone-fixture.ts'

const FLAGS = { noData: 'qr aa rd NOERROR', answer: 'qr aa rd NOERROR', nxDomain: 'qr aa rd NXDOMAIN' } as const

const IPS = ['243.0.0.10', '243.0.0.11', '243.0.0.12']

/**
 * Names close to existing ones, in all letter cases, and with octets that differ from them in the bit of the letter
 * case.
 */
const label = fc.oneof(
  fc.constantFrom('web', 'db', 'shop', 'svc', 'clusterset', 'local', 'east', 'db-0', '_http', '_tcp', 'nope', 'idle'),
  fc.constantFrom('WEB', 'Shop', 'sVc', 'a-0', 'A-0', 'a\r0', 'a-\u0010'),
  fc.string({ minLength: 1, maxLength: 12, unit: fc.constantFrom(...Array.from('abcz019-_AZ@`[{')) }),
)
const ofService = fc
  .tuple(fc.constantFrom('web', 'wEb', 'a-0', 'A-0', 'a\r0', 'a-\u0010', 'db', 'nope'), fc.constantFrom('shop', 'SHOP'))
  .map((labels) => labels.join('.'))
const ending = fc.oneof(
  { weight: 4, arbitrary: fc.constant('svc.clusterset.local.') },
  fc.constantFrom('SVC.Clusterset.LOCAL.', 'svc.clusterset.locaL.', 'svd.clusterset.local.', 'clusterset.local.', ''),
)
const name = fc
  .tuple(
    fc.oneof(
      fc.array(label, { maxLength: 5 }),
      ofService.map((one) => [one]),
    ),
    ending,
  )
  .map(([labels, end]) => `${labels.map((one) => `${one}.`).join('')}${end}`)
/** The number of addresses of the service web after a change; 0 removes the service. */
const change = fc.constantFrom(0, 1, 2, 3)
const type = fc.constantFrom(1, 28, 33, 16, 255, 65, 257)

t.test('any name and type: what the quick way says is what answer() says, before and after changes', async (t) => {
  const api = workedExamples()
  const index = await syncedIndex(api)
  const pipeline = newPipeline(index)
  api.put(clusterSetIp('a-0', ['243.0.0.9'], []))
  fc.assert(
    fc.property(name, type, fc.option(change), (asked, type, addresses) => {
      if (addresses === 0) api.drop('ServiceImport', 'web', 'shop')
      else if (addresses !== null) api.put(clusterSetIp('web', IPS.slice(0, addresses), []))
      const parsed = parseDnsName(escaped(asked))
      if (parsed.kind === 'notOurs' || parsed.kind === 'malformed') return true
      const expected = answer(index, { name: parsed, type }, 0)
      // The second query is answered from the kept answers.
      return [1, 2].every(() => {
        const given = pipeline.answer(query(asked, { type }), 'tcp', OWN_PROCESS)
        if (!Buffer.isBuffer(given) || expected.kind === 'servFail') return false
        const { flags, answers, authorities } = decode(given)
        const count = expected.kind === 'answer' ? expected.records.length : 0
        return flags === FLAGS[expected.kind] && answers.length === count && authorities.length === (count > 0 ? 0 : 1)
      })
    }),
    { numRuns: 3000 },
  )
  t.pass('always')
})

/** Escapes a name as questionName() does. */
function escaped(text: string): string {
  return text.replace(/[^A-Za-z0-9._-]/g, (octet) => `\\${String(octet.charCodeAt(0)).padStart(3, '0')}`)
}

t.test('no such name: one SOA, its names compressed, whatever the length of the question', async (t) => {
  const index = await syncedIndex(workedExamples())
  const pipeline = newPipeline(index)
  for (const length of [1, 30, 63]) {
    const given = answerAtOnce(pipeline, query(`${'x'.repeat(length)}.shop.svc.clusterset.local.`))
    const { authorities, flags } = decode(given)
    t.equal(flags, 'qr aa rd NXDOMAIN')
    const [soa] = authorities
    t.equal(soa?.name, 'clusterset.local.')
    t.match(soa?.data, /^ns\.clusterset\.local\. hostmaster\.clusterset\.local\. \d+ 7200 1800 86400 5$/)
    t.ok(given.length <= 12 + length + 32 + 50, `${given.length} octets`)
  }
})

t.test('which names are of a service, and which hash is whose', (t) => {
  const hashOf = (text: string): number => {
    const octets = nameBytes(text)
    return labelsHash(Buffer.concat([Buffer.alloc(HEADER_LENGTH), octets]), HEADER_LENGTH + octets.length)
  }
  const web = hashOf('web.shop.svc.clusterset.local.')
  for (const [text, isSame, isName] of [
    ['WEB.Shop.svc.CLUSTERSET.local.', true, true],
    ['_http._tcp.web.shop.svc.clusterset.local.', true, false],
    ['db-0.east.web.shop.svc.clusterset.local.', true, false],
    ['web.shop2.svc.clusterset.local.', false, true],
    ['we.bshop.svc.clusterset.local.', false, true],
  ] as const) {
    t.equal(hashOf(text) === web, isSame, text)
    t.equal(isServiceName(nameBytes(text)), isName, text)
  }
  for (const text of [
    'shop.svc.clusterset.local.',
    'svc.clusterset.local.',
    'clusterset.local.',
    'example.org.',
    '.',
  ]) {
    t.equal(hashOf(text), NO_SERVICE, text)
    t.equal(isServiceName(nameBytes(text)), false, text)
  }
  const known = new KnownLabels()
  known.add('shop', 'web')
  known.add('shop', 'web')
  known.delete('shop', 'web')
  t.equal(known.has(web), true, 'added twice, taken away once')
  known.delete('shop', 'web')
  t.equal(known.has(web), false)
  t.end()
})
