/** Queries DNS servers one by one, and reads which ones this machine or pod asks. */
import { Resolver } from 'node:dns/promises'
import { readFile } from 'node:fs/promises'
import type { DnsAnswer, Fact } from '../../../explain/facts/facts.ts'
import { askFor } from '../ask.ts'
import { MOST_RESOLV_CONF } from './machine-command.ts'

export interface DnsQuestion {
  /** `address:port` */
  readonly server: string
  readonly role: DnsAnswer['role']
  readonly name: string
}

const TRIES = { timeout: 700, tries: 2 }
/** Long enough for two tries, because the second one waits twice as long. */
const MS = 3500

/** The response codes of RFC 1035 for the error codes of the resolver. */
const RESULTS: Readonly<Record<string, string>> = {
  ENODATA: 'NOERROR',
  ENOTFOUND: 'NXDOMAIN',
  ESERVFAIL: 'SERVFAIL',
  EREFUSED: 'REFUSED',
  ENOTIMP: 'NOTIMP',
  EFORMERR: 'FORMERR',
  EBADRESP: 'malformed',
  ETIMEOUT: 'timeout',
  ECONNREFUSED: 'unreachable',
}

export function probeDns(question: DnsQuestion, signal: AbortSignal): Promise<readonly Fact[]> {
  const { server } = question
  const source = 'this machine'
  const asked = { what: `DnsServer ${server}`, source, needed: false, ms: MS }
  return askFor({ ...asked, ask: (limited) => answerFact(question, limited) }, signal)
}

async function answerFact({ server, role, name }: DnsQuestion, signal: AbortSignal): Promise<readonly Fact[]> {
  const resolver = new Resolver(TRIES)
  const cancel = (): void => resolver.cancel()
  signal.addEventListener('abort', cancel, { once: true })
  const began = performance.now()
  const said = await saidOf(resolver, server, name)
  signal.removeEventListener('abort', cancel)
  const item = { server, role, name, ms: performance.now() - began, ...said }
  return [{ t: 'probe', kind: 'dns-answer', source: 'this machine', at: new Date().toISOString(), items: [item] }]
}

/** Queries the SOA record: a server of the zone has it, whatever Services are exported. */
async function saidOf(
  resolver: Resolver,
  server: string,
  name: string,
): Promise<Pick<DnsAnswer, 'result' | 'message'>> {
  try {
    resolver.setServers([server])
    await resolver.resolveSoa(name)
    return { result: 'NOERROR' }
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException
    const result = RESULTS[code]
    if (result === undefined) throw error
    return result === 'timeout' || result === 'unreachable' ? { result, message } : { result }
  }
}

export const RESOLV_CONF = '/etc/resolv.conf'

/** The beginning of the file. Undefined if it cannot be read, as where no resolver is set up. */
export async function readResolvConf(path = RESOLV_CONF): Promise<string | undefined> {
  try {
    return (await readFile(path, 'utf8')).slice(0, MOST_RESOLV_CONF)
  } catch {
    return undefined
  }
}
