/** A bundle that an attacker made leads to one clear error, in bounded time and memory. */
import { symlinkSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import fc from 'fast-check'
import t from 'tap'
import { readBundle } from '../../../cli/bundle/read-bundle.ts'
import { isTarName, packTar, unpackTar } from '../../../cli/bundle/tar.ts'
import { diagnoseMember } from '../../../explain/diagnose-member.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const FACTS = 'sealane-gather/facts.json'
const at = '2026-11-26T00:00:00Z'

function tarOf(text: string, name = FACTS): Buffer {
  return packTar([{ name, content: Buffer.from(text) }], 0)
}

/** Returns the archive with a changed header field and a correct checksum. */
function patched(archive: Buffer, offset: number, text: string): Buffer {
  const copy = Buffer.from(archive)
  copy.write(text, offset, 'latin1')
  copy.fill(' ', 148, 156)
  const sum = copy.subarray(0, 512).reduce((all, octet) => all + octet, 0)
  copy.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1')
  return copy
}

const set = (rest: object): string => JSON.stringify({ format: 1, takenAt: at, target: 'x', facts: [], ...rest })

t.test('each is refused with one line', async (t) => {
  const folder = temporaryFolder(t)
  const good = tarOf(set({}))
  const objects = { t: 'objects', kind: 'Pod', source: 'x', at, items: Array.from({ length: 70_000 }, () => 1) }
  const many = Array.from({ length: 6000 }, (_one, index) => ({
    name: `sealane-gather/${index}`,
    content: Buffer.alloc(0),
  }))
  const rows: readonly (readonly [name: string, content: Buffer, said: RegExp])[] = [
    ['bomb', gzipSync(Buffer.alloc(130 << 20)), /unpacked it is larger than 128 MiB$/],
    ['no tar', gzipSync(Buffer.from('x'.repeat(2048))), /not a tar archive, or it is damaged$/],
    ['cut gzip', gzipSync(good).subarray(0, 60), /not compressed with gzip, or it is damaged$/],
    ['cut tar', gzipSync(good.subarray(0, 540)), /is cut short$/],
    ['no end', gzipSync(good.subarray(0, 1024)), /has no end/],
    [
      'climbs',
      gzipSync(patched(good, 0, '../../etc/passwd\0')),
      /"..\/..\/etc\/passwd" is not a name of a file in a bundle$/,
    ],
    ['absolute', gzipSync(patched(good, 0, '/etc/passwd\0')), /is not a name of a file/],
    ['prefix', gzipSync(patched(good, 345, '../..')), /is not a name of a file/],
    ['symlink', gzipSync(patched(good, 156, '2')), /is not a regular file$/],
    ['device', gzipSync(patched(good, 156, '3')), /is not a regular file$/],
    ['size', gzipSync(patched(good, 124, '77777777777\0')), /is cut short$/],
    ['size in base 256', gzipSync(patched(good, 124, '\u0080\u00ff\u00ff\u00ff')), /is not a number$/],
    ['terminal', gzipSync(patched(good, 0, '\u001b[2J\0')), /is not a name of a file/],
    ['twice', gzipSync(Buffer.concat([good.subarray(0, 1024), good])), /is in it twice$/],
    ['many files', gzipSync(packTar(many, 0)), /more than 5000 files$/],
    ['without facts', gzipSync(tarOf('{}', 'sealane-gather/other')), /there is no facts\.json in it$/],
    ['no JSON', gzipSync(tarOf('{"format":')), /facts\.json is not JSON$/],
    ['null', gzipSync(tarOf('null')), /format: expected 1/],
    ['later', gzipSync(tarOf(set({ format: 2 }))), /format: expected 1: another release wrote it$/],
    ['no list', gzipSync(tarOf(set({ facts: {} }))), /facts: expected a list$/],
    ['many facts', gzipSync(tarOf(set({ facts: Array.from({ length: 10_001 }, () => 1) }))), /more than 10000 facts$/],
    ['many objects', gzipSync(tarOf(set({ facts: [objects, objects, objects] }))), /more than 200000 objects$/],
  ]
  for (const [name, content, said] of rows) {
    const file = join(folder, name)
    writeFileSync(file, content)
    const error = await readBundle(file).then(
      () => undefined,
      (thrown: unknown) => thrown as Error,
    )
    t.match(error?.message, said, name)
    t.match(error?.message, new RegExp(`^--bundle ${file}: [ -~]*$`), `${name}: one printable line`)
  }
  const huge = join(folder, 'huge')
  writeFileSync(huge, '')
  truncateSync(huge, 65 << 20)
  await t.rejects(readBundle(huge), { message: /it is larger than 64 MiB$/ })
  symlinkSync('/dev/zero', join(folder, 'zero'))
  await t.rejects(readBundle(join(folder, 'zero')), { message: /expected a regular file, got a device/ })
})

t.test('facts of any shape, deep ones as well, are diagnosed without an exception', async (t) => {
  const folder = temporaryFolder(t)
  const deep = `${'['.repeat(100_000)}${']'.repeat(100_000)}`
  const polluted = `{"format":1,"takenAt":"${at}","target":"x","__proto__":{"a":1},"facts":[{"__proto__":{"t":"objects"}},${deep}]}`
  for (const [name, text] of [
    ['deep', polluted],
    ['no time', set({ takenAt: 7 })],
    ['other facts', set({ facts: [1, null, {}, { t: 'objects' }, { t: 'objects', items: [{}] }] })],
  ] as const) {
    writeFileSync(join(folder, name), gzipSync(tarOf(text)))
    const { health } = diagnoseMember(await readBundle(join(folder, name)))
    t.not(health, 'healthy', name)
  }
})

t.test('probes of any shape cost themselves alone', async (t) => {
  const folder = temporaryFolder(t)
  const answer = { server: '10.0.0.1:53', role: 'ours', name: 'clusterset.local', result: 'NOERROR', ms: 1 }
  const host = { node: 'n1', devices: [], sysctls: {}, disks: [] }
  const call = { address: 'hub:7443', stage: 'nothing', ms: 1 }
  const long = Array.from({ length: 10_001 }, () => 'x')
  // Each row has the reason code of the expected problem. A probe without a meaning is not readable.
  const rows: readonly (readonly [name: string, kind: string, items: unknown, reason: string | undefined])[] = [
    ['right', 'dns-answer', [answer], undefined],
    ['no list', 'dns-answer', { 0: answer }, 'NotReadable'],
    ['unknown kind', 'secrets', [answer], 'NotReadable'],
    ['kind of every object', '__proto__', [answer], 'NotReadable'],
    ['item of another kind', 'host', [answer], 'NotReadable'],
    ['no items', 'host', [null, 7, 'x', [], [[]]], 'NotReadable'],
    ['wrong type', 'dns-answer', [{ ...answer, result: ['NOERROR'] }], 'NotReadable'],
    ['unknown role', 'dns-answer', [{ ...answer, role: 'root' }], 'NotReadable'],
    ['negative time', 'broker-call', [{ ...call, ms: -1 }], 'NotReadable'],
    ['time that is none', 'broker-call', [{ ...call, ms: '1e999' }], 'NotReadable'],
    ['huge text', 'broker-call', [{ ...call, message: 'x'.repeat(40_000) }], 'NotReadable'],
    ['huge list', 'settings', [{ listen: long, upstreams: [] }], 'NotReadable'],
    ['many devices', 'host', [{ ...host, devices: long.map((name) => ({ name, addresses: [] })) }], 'NotReadable'],
    ['many disks', 'host', [{ ...host, disks: long.map((path) => ({ path, used: 9, limit: 9 })) }], 'NotReadable'],
    ['dates that are none', 'identity', [{ begins: 'x', ends: '' }], undefined],
    ['same name twice', 'host', [host, { ...host, sysctls: { 'net/ipv4/ip_forward': '0' } }], undefined],
    [
      'control characters',
      'dns-answer',
      [{ ...answer, server: 'a\u001b[2J\nb\u0000', result: 'timeout' }],
      'DnsServerSilent',
    ],
    ['words of a terminal', 'broker-call', [{ ...call, message: '\u001b]0;x\u0007\r\n' }], 'BrokerSilent'],
  ]
  for (const [name, kind, items, reason] of rows) {
    const file = join(folder, name)
    writeFileSync(file, gzipSync(tarOf(set({ facts: [{ t: 'probe', source: '\u001b[1mx', at, kind, items }] }))))
    const { problems } = diagnoseMember(await readBundle(file))
    const found = problems.filter((one) => one.source !== 'the objects of this cluster')
    t.equal(found[0]?.reason, reason, name)
    t.notMatch(
      problems.map((one) => Object.values(one).join(' ')).join(' '),
      /[\u0000-\u001f\u007f]/,
      `${name}: printable`,
    )
    t.ok(JSON.stringify(problems).length < 20_000, `${name}: a few lines`)
  }
})

const names = fc.stringMatching(/^[A-Za-z0-9_-][A-Za-z0-9._-]{0,20}(\/[a-z0-9]{1,10}){0,3}$/)

t.test('what is packed is unpacked; what is damaged throws Errors alone', (t) => {
  const file = fc.record({ name: names, content: fc.uint8Array({ maxLength: 2000 }).map((one) => Buffer.from(one)) })
  fc.assert(
    fc.property(fc.uniqueArray(file, { selector: ({ name }) => name, maxLength: 6 }), (files) => {
      const read = unpackTar(packTar(files, 0), 10)
      t.same(
        [...read],
        files.map(({ name, content }) => [name, content]),
      )
    }),
    { numRuns: 50 },
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 3000 }), fc.nat(1023), fc.nat(255), (content, offset, octet) => {
      const archive = tarOf(Buffer.from(content).toString('hex'))
      archive[offset] = octet
      try {
        for (const name of unpackTar(archive, 10).keys()) t.ok(isTarName(name))
      } catch (error) {
        t.equal((error as Error).constructor, Error)
      }
    }),
    { numRuns: 200 },
  )
  t.end()
})
