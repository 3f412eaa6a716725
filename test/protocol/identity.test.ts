import fc from 'fast-check'
import { type KeyObject, generateKeyPairSync, X509Certificate } from 'node:crypto'
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { inspect } from 'node:util'
import t from 'tap'
import type { ClusterId } from '../../model/ids.ts'
import { formatBrokerAddress, parseBrokerAddress } from '../../protocol/broker-addresses.ts'
import { createKey, keyFromPem, keyToPem } from '../../protocol/identity/keys.ts'
import {
  certificateToPem,
  certificatesFromPem,
  fingerprint,
  readCertificate,
} from '../../protocol/identity/certificates.ts'
import {
  type IdentityPart,
  type MemberIdentity,
  readMemberIdentity,
  writeMemberIdentity,
} from '../../protocol/membership/member-files.ts'
import {
  JoinToken,
  TokenError,
  createJoinToken,
  hashTokenSecret,
  parseJoinToken,
} from '../../protocol/identity/token.ts'
import {
  createCa,
  createCsr,
  createServerCertificate,
  issueMemberCertificate,
  verifyCsr,
} from '../../protocol/identity/x509.ts'
import { failure } from '../support/failure.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

const nowMs = Date.UTC(2026, 10, 20, 12)
const hour = 3600_000
const ca = await createCa({ clusterset: 'demo', key: createKey(), nowMs })
const cluster = 'milano' as ClusterId

t.test('a member certificate says who, for how long, and for what', async (t) => {
  const key = createKey()
  const der = await issueMemberCertificate(ca, { clusterset: 'demo', cluster, csr: await createCsr(key), nowMs })
  const facts = readCertificate(der)
  t.match(facts, { clusterset: 'demo', cluster: 'milano', isCa: false, dnsNames: [] })
  t.equal(facts.notAfterMs, nowMs + 24 * hour)
  t.ok(Math.abs(facts.renewAtMs - (nowMs + 16 * hour)) < 5 * 60_000, 'renewed at two thirds')
  const node = new X509Certificate(der)
  t.ok(node.verify(new X509Certificate(ca.certificate).publicKey))
  t.ok(node.checkPrivateKey(key))
  t.same(node.keyUsage, ['1.3.6.1.5.5.7.3.2'], 'client use only')
  t.equal(node.ca, false)
  t.same(
    certificatesFromPem(certificateToPem(der)).map((d) => fingerprint(d)),
    [fingerprint(der)],
  )
  t.equal(fingerprint(der), node.fingerprint256.replaceAll(':', '').toLowerCase())
})

t.test('CA and broker', async (t) => {
  t.match(readCertificate(ca.certificate), { isCa: true, clusterset: 'demo' })
  t.notOk('cluster' in readCertificate(ca.certificate))
  const server = await createServerCertificate(ca, {
    clusterset: 'demo',
    key: createKey(),
    nowMs,
    hosts: ['broker.example', '192.0.2.1', '2001:db8::1'],
  })
  const node = new X509Certificate(server.certificate)
  t.match(readCertificate(server.certificate), {
    clusterset: 'demo',
    dnsNames: ['broker.sealane.internal', 'broker.example'],
  })
  t.equal(node.checkIP('192.0.2.1'), '192.0.2.1')
  t.equal(node.checkIP('2001:db8::1'), '2001:db8::1')
  t.same(node.keyUsage, ['1.3.6.1.5.5.7.3.1'], 'server use only')
  await t.rejects(createCa({ clusterset: 'De mo', key: createKey(), nowMs }), {
    message: 'clusterset "De mo": expected an RFC 1123 subdomain',
  })
})

t.test('certificate requests that are refused', async (t) => {
  const good = await createCsr(createKey())
  await verifyCsr(good)
  const forged = Uint8Array.from(good)
  forged[forged.length - 1] = (forged.at(-1) ?? 0) ^ 1
  const cases: [Uint8Array, string][] = [
    [new Uint8Array(), 'certificate request: not PKCS #10 in DER form'],
    [Buffer.from('hello'), 'certificate request: not PKCS #10 in DER form'],
    [good.subarray(0, 50), 'certificate request: not PKCS #10 in DER form'],
    [ca.certificate, 'certificate request: not PKCS #10 in DER form'],
    [forged, 'certificate request: its signature does not match its key'],
  ]
  for (const [csr, message] of cases) await t.rejects(verifyCsr(csr), { name: 'CsrError', message })
  const signedBytes = 3 + 2 + 98
  await fc.assert(
    fc.asyncProperty(fc.nat(good.length - 1), fc.integer({ min: 1, max: 255 }), async (at, change) => {
      const bytes = Uint8Array.from(good)
      bytes[at] = (bytes[at] ?? 0) ^ change
      const error = await verifyCsr(bytes).then(
        () => undefined,
        (e: unknown) => e as Error,
      )
      // Outside the signed part some bytes may differ without harm, as long as the signature still fits.
      return at >= 3 && at < signedBytes ? error?.name === 'CsrError' : error === undefined || error.name === 'CsrError'
    }),
    { numRuns: 200 },
  )
})

t.test('reading rubbish fails in words', (t) => {
  t.throws(() => readCertificate(Buffer.from('x')), { message: 'not an X.509 certificate' })
  t.throws(() => certificatesFromPem('hello'), { message: 'no certificate in PEM form' })
  t.throws(() => keyFromPem('hello'), { message: 'not a private key in PEM form (ECDSA P-256)' })
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
  const rsaPem = rsa.export({ type: 'pkcs8', format: 'pem' })
  t.throws(() => keyFromPem(rsaPem), { message: 'not a private key in PEM form (ECDSA P-256)' })
  const key = createKey()
  t.equal(keyToPem(keyFromPem(keyToPem(key))), keyToPem(key))
  t.notMatch(inspect(key), /PRIVATE KEY-/)
  t.end()
})

const init = {
  addresses: ['broker.example:7443', '[2001:db8::1]:7443'],
  caPin: fingerprint(ca.certificate),
  clusterset: 'demo',
  expiresAtMs: nowMs + 15 * 60_000,
}

t.test('a token comes back as it was, and hides its secret', (t) => {
  const token = createJoinToken(init)
  const back = parseJoinToken(`  ${token.text()}\n`, nowMs)
  t.equal(JSON.stringify(back), JSON.stringify(token))
  t.equal(back.text(), token.text())
  t.equal(back.secret(), token.secret())
  t.equal(Buffer.from(token.secret(), 'base64url').length, 32)
  t.match(hashTokenSecret(token.secret()), /^[0-9a-f]{64}$/)
  for (const text of [inspect(token), JSON.stringify(token)]) t.notOk(text.includes(token.secret()))
  t.end()
})

t.test('tokens that are not good, and why', (t) => {
  const token = createJoinToken(init)
  const text = token.text()
  const sealed = (changes: object): string => new JoinToken({ ...init, id: 'x', ...changes }, token.secret()).text()
  const cases: [string, string, string][] = [
    ['', 'malformed', 'join token: expected text that begins with "sealane1."'],
    ['hello', 'malformed', 'join token: expected text that begins with "sealane1."'],
    ['sealane2.AAAA', 'version', 'join token: a broker of another version created it (token format 2, expected 1)'],
    ['sealane1.a b', 'malformed', 'join token: expected only A-Z, a-z, 0-9, - and _ after "sealane1."'],
    ['sealane1.', 'damaged', 'join token: its checksum is wrong: the token was truncated or changed when copied'],
    [text.slice(0, -7), 'damaged', 'join token: its checksum is wrong: the token was truncated or changed when copied'],
    [sealed({ addresses: [] }), 'malformed', 'join token: its broker addresses cannot be read'],
    [sealed({ addresses: ['a b'] }), 'malformed', 'join token: its broker addresses cannot be read'],
    [sealed({ caPin: 'x' }), 'malformed', 'join token: its CA pin cannot be read'],
    [sealed({ clusterset: 'A' }), 'malformed', 'join token: its clusterset cannot be read'],
    [sealed({ expiresAtMs: 1.5 }), 'malformed', 'join token: its expiry cannot be read'],
  ]
  for (const [bad, problem, message] of cases)
    t.throws(() => parseJoinToken(bad, nowMs), { name: 'TokenError', problem, message })
  const ago: [number, string][] = [
    [0, '0 s'],
    [42_000, '42 s'],
    [16 * 60_000, '16 min'],
    [3 * hour, '3 h'],
    [50 * hour, '2 d'],
  ]
  for (const [ms, want] of ago) {
    t.throws(() => parseJoinToken(text, token.expiresAtMs + ms), {
      problem: 'expired',
      message: `join token: expired ${want} ago by this machine's clock: create a new one with "sealane token create"`,
    })
  }
  fc.assert(
    fc.property(
      fc.oneof(
        fc.string({ unit: 'grapheme' }),
        fc.string().map((s) => `sealane1.${s}`),
        fc.nat(text.length).map((n) => text.slice(0, n)),
      ),
      (s) => {
        try {
          parseJoinToken(s, nowMs)
          return s === text
        } catch (error) {
          return error instanceof TokenError && !error.message.includes(token.secret())
        }
      },
    ),
    { numRuns: 2000, examples: [[text.slice(0, -1)]] },
  )
  t.end()
})

t.test('broker addresses', (t) => {
  const cases: [string, string | undefined][] = [
    ['192.0.2.1:7443', '192.0.2.1:7443'],
    ['192.0.2.1', '192.0.2.1:7443'],
    ['broker.example:443', 'broker.example:443'],
    ['[2001:db8::1]:7443', '[2001:db8::1]:7443'],
    ['[2001:db8::1]', '[2001:db8::1]:7443'],
    ['2001:db8::1', undefined],
    ['host:0', undefined],
    ['host:70000', undefined],
    ['[::g]:1', undefined],
    ['a b:1', undefined],
    ['', undefined],
  ]
  for (const [text, want] of cases) {
    if (want === undefined)
      t.throws(() => parseBrokerAddress(text), {
        message: `broker address ${JSON.stringify(text)}: expected host:port, such as 192.0.2.1:7443 or [2001:db8::1]:7443`,
      })
    else t.equal(formatBrokerAddress(parseBrokerAddress(text)), want)
  }
  t.end()
})

t.test(
  'an identity that takes the place of another: wherever the writing ends, there is a whole one or none',
  async (t) => {
    const directory = temporaryFolder(t)
    const made = async (key: KeyObject): Promise<MemberIdentity> => {
      const csr = await createCsr(key)
      const certificate = await issueMemberCertificate(ca, { clusterset: 'demo', cluster, csr, nowMs })
      const place = { clusterset: 'demo', brokerAddresses: ['broker:7443'], observedAddress: '192.0.2.1' }
      return { cluster, ...place, key, certificate, caBundle: [ca.certificate] }
    }
    /** The stored identity after a write failed because a folder was in the way of the part. */
    const halfway = async (identity: MemberIdentity, part: IdentityPart): Promise<MemberIdentity | undefined> => {
      const file = join(directory, part)
      const before = readFileSync(file)
      rmSync(file)
      mkdirSync(join(file, 'full'), { recursive: true })
      t.match(await failure(writeMemberIdentity(directory, identity)), { name: 'IdentityFileError' }, part)
      rmSync(file, { recursive: true })
      writeFileSync(file, before, { mode: 0o600 })
      return readMemberIdentity(directory)
    }
    for (const part of ['ca.crt', 'cluster.crt'] as const satisfies readonly IdentityPart[]) {
      const key = createKey()
      await writeMemberIdentity(directory, await made(key))
      t.ok((await halfway(await made(key), part))?.key.equals(key), `renewed, up to ${part}`)
      const found = await halfway(await made(createKey()), part)
      const isWhole = found !== undefined && new X509Certificate(found.certificate).checkPrivateKey(found.key)
      t.ok(found === undefined || isWhole, `another key, up to ${part}`)
    }
  },
)
