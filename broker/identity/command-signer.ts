/**
 * An authority whose key is elsewhere (an HSM, a KMS): a command of the operator signs. The command reads the data to
 * sign from standard input and writes the signature, ECDSA with SHA-256, to standard output: in DER, or as r and s of
 * 32 bytes each. It runs without a shell, with a timeout and limited output. Each signature is verified before it is
 * used.
 */
import { type KeyObject, X509Certificate, verify } from 'node:crypto'
import { BrokerUnreachableError } from '../../protocol/protocol.ts'
import { fingerprint } from '../../protocol/identity/identity.ts'
import { ProgramError, messageOf, runProgram } from '../../runtime/runtime.ts'

export interface SignerCommand {
  /** Absolute path of the program. */
  readonly command: string
  readonly args: readonly string[]
  readonly timeoutMs: number
}

export const DEFAULT_SIGNER_TIMEOUT_MS = 10_000
/** Environment variable that names the authority to sign for, since there may be two. */
export const SIGNER_FINGERPRINT = 'SEALANE_CA_FINGERPRINT'

/** Limit in bytes. A signature has about 72. */
const MAX_OUTPUT = 4096
/** Limits of running processes and of calls that wait for one: a member can request renewals as often as it likes. */
const MAX_RUNNING = 4
const MAX_WAITING = 64
/** r and s of a P-256 signature. */
const RAW_BYTES = 64
/** Characters of the signer's standard error in a log line. */
const MAX_SAID = 200

/**
 * Takes DER and returns a signature in DER. Throws BrokerUnreachableError with the reason: a later attempt may succeed.
 */
export type Sign = (toBeSigned: Uint8Array) => Promise<Uint8Array>

export interface SignerCounts {
  signed(result: 'ok' | 'failed' | 'busy'): void
}

/** One for all authorities of a broker, so that the limits apply to all of them together. */
export class CommandSigner {
  readonly #command: SignerCommand
  readonly #counts: SignerCounts
  #running = 0
  readonly #waiting: (() => void)[] = []

  constructor(command: SignerCommand, counts: SignerCounts) {
    this.#command = command
    this.#counts = counts
  }

  /** Returns a function that signs as the authority of this certificate, which is DER. */
  signFor(certificate: Uint8Array): Sign {
    const key = new X509Certificate(certificate).publicKey
    const fp = fingerprint(certificate)
    return async (toBeSigned) => {
      await this.#turn()
      try {
        const written = await this.#run(toBeSigned, fp)
        const signature = inDer(written).find((one) => isSignature(key, toBeSigned, one))
        if (signature === undefined) throw failed('its output is not a signature with the key of this authority')
        this.#counts.signed('ok')
        return signature
      } catch (error) {
        this.#counts.signed('failed')
        throw error
      } finally {
        this.#endTurn()
      }
    }
  }

  async #turn(): Promise<void> {
    if (this.#running >= MAX_RUNNING) {
      if (this.#waiting.length >= MAX_WAITING) {
        this.#counts.signed('busy')
        throw new BrokerUnreachableError('the signer of the certificate authority is overloaded', {
          reason: 'SignerBusy',
        })
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve))
      return
    }
    this.#running += 1
  }

  /** The next one takes over the turn at once: in between, a new call would take it too. */
  #endTurn(): void {
    const next = this.#waiting.shift()
    if (next === undefined) this.#running -= 1
    else next()
  }

  async #run(input: Uint8Array, fp: string): Promise<Buffer> {
    const { command, args, timeoutMs } = this.#command
    const env = { ...process.env, [SIGNER_FINGERPRINT]: fp }
    const init = { env, input, timeoutMs, maxOutputBytes: MAX_OUTPUT }
    const { code, stdout, stderr } = await runProgram(command, args, init).catch((error: unknown) => {
      throw failed(error instanceof ProgramError ? problemOf(error, timeoutMs) : messageOf(error))
    })
    if (code !== 0) throw failed(`it exited with status ${code}${wordsOf(stderr)}`)
    return stdout
  }
}

function problemOf({ failure, code, message, stderr }: ProgramError, timeoutMs: number): string {
  if (failure === 'late') return `it did not exit within ${timeoutMs / 1000} s`
  if (failure === 'not started') return `it did not start (${code ?? message})`
  return failure === 'too much' ? message : `${message}${wordsOf(stderr)}`
}

function wordsOf(stderr: Buffer): string {
  const words = stderr
    .toString('utf8')
    .slice(0, MAX_SAID)
    .replaceAll(/\p{C}+/gu, ' ')
    .trim()
  return words === '' ? '' : `; its output: ${words}`
}

function failed(problem: string): BrokerUnreachableError {
  return new BrokerUnreachableError(`the signer of the certificate authority: ${problem}`, { reason: 'SignerFailed' })
}

function isSignature(key: KeyObject, signed: Uint8Array, signature: Uint8Array): boolean {
  try {
    return verify('sha256', signed, { key, dsaEncoding: 'der' }, signature)
  } catch {
    return false
  }
}

/** The signature in DER. Two values if it may have either form: r and s may begin as DER does. */
function inDer(signature: Buffer): readonly Uint8Array[] {
  const isDer = signature[0] === 0x30 && signature[1] === signature.length - 2
  return [...(isDer ? [signature] : []), ...(signature.length === RAW_BYTES ? [fromRaw(signature)] : [])]
}

function fromRaw(signature: Buffer): Uint8Array {
  const numbers = [signature.subarray(0, RAW_BYTES / 2), signature.subarray(RAW_BYTES / 2)].map(integer)
  const content = Buffer.concat(numbers)
  return Buffer.concat([Buffer.from([0x30, content.length]), content])
}

/** A positive INTEGER in DER: no leading zeros, except one if the first bit is set. */
function integer(bytes: Buffer): Buffer {
  const first = bytes.findIndex((byte) => byte !== 0)
  const digits = first < 0 ? Buffer.from([0]) : bytes.subarray(first)
  const value = (digits[0] ?? 0) >= 0x80 ? Buffer.concat([Buffer.from([0]), digits]) : digits
  return Buffer.concat([Buffer.from([0x02, value.length]), value])
}
