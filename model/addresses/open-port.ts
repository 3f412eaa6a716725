/** A port of this cluster's nodes that pods of other clusters may call, as the operator writes it: `tcp/9100`. Pure. */
export interface OpenPort {
  readonly protocol: 'tcp' | 'udp'
  readonly port: number
  /** Of the node, in its usual form; absent: all that it has among its pods. */
  readonly address?: string
}

/** Undefined for a text that is none. */
export function parseOpenPort(text: string): OpenPort | undefined {
  const [, protocol, number] = /^(tcp|udp)\/([1-9]\d{0,4})$/.exec(text) ?? []
  const port = Number(number)
  if (protocol === undefined || port > 0xffff) return undefined
  return { protocol: protocol as OpenPort['protocol'], port }
}
