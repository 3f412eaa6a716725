/**
 * What of the ports outside outlives a process: the secret that names them at the router, and the mappings themselves.
 * The router goes on with them while the process is restarted, and so do the links.
 */
import { createHmac, randomBytes } from 'node:crypto'
import { mkdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { type AddressPort, formatAddressPort, isAddress, parseAddressPort } from '../../../model/addresses/addresses.ts'
import { replaceFile } from '../../../runtime/runtime.ts'
import { type MappingProtocol, NONCE_BYTES } from './mapping-frame.ts'

const SECRET_FILE = 'port-mapping-secret'
const SECRET_BYTES = 32
const FILE = 'port-mappings.json'
/** One for each lane number. */
const MOST_PORTS = 8

export interface KeptMapping {
  readonly inside: number
  readonly outside: AddressPort
  /** Until when the router keeps it: time of day, in milliseconds. */
  readonly untilMs: number
}

export interface KeptMappings {
  readonly router: string
  readonly protocol: MappingProtocol
  /** The place that far ends know. Absent: none. */
  readonly place?: AddressPort
  readonly ports: readonly KeptMapping[]
}

/** Undefined if nothing usable is there. Never throws. `stateDir`: the node's private directory. */
export async function readMappings(stateDir: string): Promise<KeptMappings | undefined> {
  try {
    return decodeMappings(JSON.parse(await readFile(join(stateDir, FILE), 'utf8')))
  } catch {
    // There is none, or it is damaged: the router is asked as if for the first time.
    return undefined
  }
}

/** Throws what the file system throws. */
export async function keepMappings(stateDir: string, { router, protocol, place, ports }: KeptMappings): Promise<void> {
  const text = JSON.stringify({
    ...{ router, protocol },
    ...(place === undefined ? {} : { place: formatAddressPort(place) }),
    ports: ports.map((one) => ({ ...one, outside: formatAddressPort(one.outside) })),
  })
  await mkdir(stateDir, { recursive: true, mode: 0o700 })
  await replaceFile(join(stateDir, FILE), `${text}\n`)
}

export function forgetMappings(stateDir: string): Promise<void> {
  return rm(join(stateDir, FILE), { force: true })
}

/** Throws InvalidAddressError. */
function decodeMappings(value: unknown): KeptMappings | undefined {
  const { router, protocol, place, ports } = Object(value) as Partial<Record<keyof KeptMappings, unknown>>
  if (typeof router !== 'string' || !isAddress(router) || (protocol !== 'pcp' && protocol !== 'natPmp'))
    return undefined
  if (!Array.isArray(ports) || ports.length > MOST_PORTS) return undefined
  const kept = ports.flatMap((one: unknown): KeptMapping[] => {
    const { inside, outside, untilMs } = Object(one) as Partial<Record<keyof KeptMapping, unknown>>
    if (typeof inside !== 'number' || !Number.isInteger(inside) || inside < 1 || inside > 0xffff) return []
    if (typeof outside !== 'string' || typeof untilMs !== 'number') return []
    return [{ inside, outside: parseAddressPort(outside), untilMs }]
  })
  return { router, protocol, ports: kept, ...(typeof place === 'string' ? { place: parseAddressPort(place) } : {}) }
}

/** The names of mappings, by port of this node, from a secret: a router renews a mapping only under its own name. */
export function mappingNonce(secret: Buffer): (port: number) => Buffer {
  return (port) => createHmac('sha256', secret).update(`UDP ${port}`).digest().subarray(0, NONCE_BYTES)
}

/** Makes a secret if there is none. Throws if one may be there and cannot be read: the living mappings have its names. */
export async function readMappingSecret(stateDir: string, onUnkept: (error: unknown) => void): Promise<Buffer> {
  const path = join(stateDir, SECRET_FILE)
  const kept = await readFile(path).catch((error: unknown) => {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  })
  if (kept?.length === SECRET_BYTES) return kept
  const made = randomBytes(SECRET_BYTES)
  try {
    await mkdir(stateDir, { recursive: true, mode: 0o700 })
    await replaceFile(path, made)
  } catch (error) {
    onUnkept(error)
  }
  return made
}

/** Removes what a gateway that has left needs no longer. */
export async function removeMappingSecret(stateDir: string): Promise<void> {
  await rm(join(stateDir, SECRET_FILE), { force: true })
}
