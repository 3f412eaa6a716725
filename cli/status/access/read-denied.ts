/** Reads samples of refused packets, which another release or another program may have written. Pure. */
import { UserError } from '../../../runtime/runtime.ts'

export interface DeniedEnd {
  readonly address: string
  readonly cluster?: string
  readonly namespace?: string
  readonly service?: string
  readonly pod?: string
}

export interface DeniedRow {
  readonly at: string
  readonly node?: string
  readonly reason: string
  readonly from: DeniedEnd
  readonly to: DeniedEnd
  readonly protocol: string
  readonly port?: number
}

/** Takes the page of a routeagent, or what `show denied -o json` prints. Throws UserError. */
export function readDenied(text: string): DeniedRow[] {
  const refuse = (what: string): never => {
    throw new UserError(`samples of refused packets: expected ${what}`)
  }
  let said: unknown
  try {
    said = JSON.parse(text)
  } catch {
    refuse('JSON')
  }
  const list = Array.isArray(said) ? said : (said as { readonly items?: unknown } | null)?.items
  if (!Array.isArray(list)) return refuse('a list')
  return list.map((item: unknown) => rowOf(item) ?? refuse('at, reason, from.address, to.address and protocol'))
}

function rowOf(item: unknown): DeniedRow | undefined {
  const { at, reason, from, to, protocol, port } = fieldsOf(item)
  const [caller, called] = [fieldsOf(from), fieldsOf(to)]
  const needed = [at, reason, protocol, caller['address'], called['address']].map(shortText)
  if (needed.includes(undefined)) return undefined
  const [time = '', why = '', kind = '', source = '', destination = ''] = needed
  return {
    ...{ at: time, reason: why, protocol: kind },
    from: endOf(source, caller),
    to: endOf(destination, called),
    ...(typeof port === 'number' && Number.isInteger(port) ? { port } : {}),
  }
}

function endOf(address: string, fields: Readonly<Record<string, unknown>>): DeniedEnd {
  return {
    address,
    ...given('cluster', shortText(fields['cluster'])),
    ...given('namespace', shortText(fields['namespace'])),
    ...given('service', shortText(fields['service'])),
    ...given('pod', shortText(fields['pod'])),
  }
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? (value as Readonly<Record<string, unknown>>) : {}
}

/** No line ends or other control characters reach the terminal. */
function shortText(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' && /^[\x20-\x7e]{1,300}$/.test(value) ? value : undefined
}

function given<K extends string>(key: K, value: string | undefined): { readonly [key in K]?: string } {
  return value === undefined ? {} : ({ [key]: value } as { readonly [key in K]: string })
}
