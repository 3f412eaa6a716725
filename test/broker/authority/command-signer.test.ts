/**
 * A signing key that only an external command can use. Its signatures are as good as those of a key file, and a command
 * that misbehaves does no harm.
 */
import { X509Certificate, createHash, verify } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { CertificateAuthority } from '../../../broker/identity/certificate-authority.ts'
import { CommandSigner } from '../../../broker/identity/command-signer.ts'
import { openMemoryLog } from '../../../broker/store/memory-log.ts'
import { parseClusterId } from '../../../model/ids.ts'
import { BrokerUnreachableError } from '../../../protocol/broker-client.ts'
import { createKey, keyToPem } from '../../../protocol/identity/keys.ts'
import { certificateToPem, fingerprint, readCertificate } from '../../../protocol/identity/certificates.ts'
import { createCa, createCsr } from '../../../protocol/identity/x509.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { failure } from '../../support/failure.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const clock = new SystemClock()

/**
 * A program that signs standard input with the key in the file that its first argument names, in the form that its
 * second argument names.
 */
const SIGNER = `
import { readFileSync } from 'node:fs'
import { createPrivateKey, sign } from 'node:crypto'
const [, , keyFile, form] = process.argv
const key = createPrivateKey(readFileSync(keyFile))
const input = readFileSync(0)
process.stdout.write(sign('sha256', input, { key, dsaEncoding: form === 'raw' ? 'ieee-p1363' : 'der' }))
`

async function signing(t: Test) {
  const folder = temporaryFolder(t)
  const key = createKey()
  const { certificate } = await createCa({ clusterset: 'demo', key, nowMs: clock.now() })
  const [script, keyFile] = [join(folder, 'signer.mjs'), join(folder, 'hsm.pem')]
  writeFileSync(script, SIGNER)
  writeFileSync(keyFile, keyToPem(key), { mode: 0o600 })
  const counted: string[] = []
  const signer = (args: readonly string[], timeoutMs = 20_000, command = process.execPath): CommandSigner =>
    new CommandSigner({ command, args, timeoutMs }, { signed: (result) => void counted.push(result) })
  return { folder, key, certificate, script, keyFile, counted, signer }
}

t.test('a broker whose key is behind a command', async (t) => {
  const { folder, certificate, script, keyFile, signer, counted } = await signing(t)
  const givenDir = join(folder, 'given')
  mkdirSync(givenDir)
  writeFileSync(join(givenDir, 'hsm.crt'), certificateToPem(certificate))
  const log = openMemoryLog()
  const init = {
    stateDir: join(folder, 'state'),
    clusterset: 'demo',
    hosts: ['127.0.0.1'],
    memberMs: 3_600_000,
    givenDir,
  }
  for (const form of ['der', 'raw']) {
    const authority = await CertificateAuthority.open(
      { clock, log },
      { ...init, signer: signer([script, keyFile, form]) },
    )
    t.equal(authority.pin, fingerprint(certificate))
    const key = createKey()
    const issued = await authority.issue(parseClusterId('milano'), await createCsr(key))
    const member = new X509Certificate(issued.certificate)
    const ca = new X509Certificate(certificate)
    t.ok(member.verify(ca.publicKey) && member.checkIssued(ca) && member.checkPrivateKey(key), form)
    t.equal(readCertificate(issued.certificate).cluster, 'milano')
    t.ok(new X509Certificate(authority.server.certificate).verify(ca.publicKey))
  }
  t.strictSame(new Set(counted), new Set(['ok']))
  const silent = await CertificateAuthority.open({ clock, log }, { ...init, signer: signer(['-e', 'process.exit(3)']) })
  t.ok(silent.server.certificate.length > 0, 'it starts with the server certificate that it has')
  const refused = await failure(silent.issue(parseClusterId('milano'), await createCsr(createKey())))
  t.match(refused, { reason: 'SignerFailed', message: /exited with status 3/ })
})

/** A nonce whose r begins like a DER sequence of 64 bytes. */
const NONCE = 0xe1b74def3ac00500aaa8f9532d6ad3cba594580c5106fd1a18f75c34f5606e96n
const R = 0x303e2656e917e53552d94627dbbd8f664a54cc8ff6b2be3c1e33fb8d78070b27n
const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n

function power(base: bigint, exponent: bigint): bigint {
  if (exponent === 0n) return 1n
  const half = power((base * base) % ORDER, exponent / 2n)
  return exponent % 2n === 0n ? half : (half * base) % ORDER
}

t.test('r and s that look like DER', async (t) => {
  const { key, certificate, signer } = await signing(t)
  const input = Buffer.from('to be signed')
  const number = (bytes: Uint8Array): bigint => BigInt(`0x${Buffer.from(bytes).toString('hex')}`)
  const secret = number(Buffer.from(key.export({ format: 'jwk' }).d ?? '', 'base64url'))
  const hash = number(createHash('sha256').update(input).digest())
  const s = (power(NONCE, ORDER - 2n) * (hash + R * secret)) % ORDER
  const raw = [R, s].map((one) => one.toString(16).padStart(64, '0')).join('')
  const signature = await signer(['-e', `process.stdout.write("${raw}", "hex")`]).signFor(certificate)(input)
  t.ok(verify('sha256', input, new X509Certificate(certificate).publicKey, signature))
})

t.test('a signer that misbehaves', async (t) => {
  const { certificate, script, keyFile, signer, counted, folder } = await signing(t)
  const input = Buffer.from('to be signed')
  const other = join(folder, 'other.pem')
  writeFileSync(other, keyToPem(createKey()), { mode: 0o600 })
  const rows: [string, readonly string[], RegExp, string?][] = [
    [
      'fails',
      ['-e', 'console.error("no\\u001b[2J slot"); process.exit(1)'],
      /exited with status 1; its output: no \[2J slot/,
    ],
    ['prints garbage', ['-e', 'process.stdout.write("garbage")'], /not a signature with the key of this authority/],
    ['prints nothing', ['-e', ''], /not a signature with the key of this authority/],
    ['prints without end', ['-e', 'for (;;) process.stdout.write("x".repeat(1000))'], /more than 4096 bytes/],
    ['signs by another key', [script, other, 'der'], /not a signature with the key of this authority/],
    ['hangs', ['-e', 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)'], /did not exit within 0.7 s/],
    ['is not there', [], /did not start \(ENOENT\)/, join(folder, 'none')],
    ['may not be run', [], /did not start \(EACCES\)/, other],
  ]
  for (const [name, args, want, command] of rows) {
    const error = await failure(signer(args, name === 'hangs' ? 700 : 20_000, command).signFor(certificate)(input))
    t.ok(error instanceof BrokerUnreachableError, `${name}: ${error.message}`)
    t.match(error, { reason: 'SignerFailed', message: want }, name)
  }
  t.strictSame(new Set(counted), new Set(['failed']))
  t.ok(await signer([script, keyFile, 'der']).signFor(certificate)(input), 'the next one may be good')
})

t.test('more than it can do is refused at once', async (t) => {
  const { certificate, signer, counted } = await signing(t)
  const slow = signer(['-e', 'setInterval(() => {}, 1000)'], 200).signFor(certificate)
  const calls = Array.from({ length: 70 }, () => failure(slow(Buffer.from('x'))))
  const busy = await Promise.race(calls)
  t.match(busy, { reason: 'SignerBusy' })
  await Promise.all(calls)
  t.equal(counted.filter((one) => one === 'busy').length, 2, 'four run, 64 wait')
})

t.test('a call that comes at the moment when another ends waits behind those that wait', async (t) => {
  const { certificate, folder } = await signing(t)
  const go = join(folder, 'go')
  const script = `
    const { existsSync, readFileSync } = require('node:fs')
    if (readFileSync(0, 'utf8') === 'short') process.exit(1)
    setInterval(() => existsSync(process.argv[1]) && process.exit(1), 10)`
  const command = { command: process.execPath, args: ['-e', script, go], timeoutMs: 60_000 }
  const calls: Promise<Error>[] = []
  const counted: string[] = []
  const call = (text: string): void => void calls.push(failure(sign(Buffer.from(text))))
  const comes = Promise.withResolvers<undefined>()
  const signer = new CommandSigner(command, {
    signed: (result) => {
      counted.push(result)
      if (counted.length > 1) return
      queueMicrotask(() => {
        call('long')
        comes.resolve(undefined)
      })
    },
  })
  const sign = signer.signFor(certificate)
  for (const text of ['short', 'long', 'long', 'long', 'long']) call(text)
  await comes.promise
  await new Promise(setImmediate)
  for (let i = 0; i < 64; i += 1) call('long')
  t.strictSame(counted, ['failed', 'busy'], 'four run and one waits: there is room for 63')
  writeFileSync(go, '')
  await Promise.all(calls)
})
