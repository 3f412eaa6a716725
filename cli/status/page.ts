/** What a status page on this machine answers. */
import { request } from 'node:http'
import { NothingRunsError } from './ask.ts'

/** Throws where nothing listens, it answers no 200, or more than `maxBytes`. */
export function textOfPage(address: string, path: string, maxBytes: number, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(`http://${address}${path}`, { signal, agent: false }, (response) => {
      const chunks: Buffer[] = []
      let size = 0
      response.on('data', (chunk: Buffer) => {
        chunks.push(chunk)
        size += chunk.length
        if (size > maxBytes) asked.destroy(new Error(`${address} answers more than a status page has`))
      })
      response.on('error', reject)
      response.on('end', () => {
        if (response.statusCode === 200) resolve(Buffer.concat(chunks).toString())
        else reject(new Error(`${address} answers ${response.statusCode ?? 0}${meaning(response.statusCode)}`))
      })
    })
    asked.on('error', (error: NodeJS.ErrnoException) => {
      reject(error.code === 'ECONNREFUSED' ? new NothingRunsError(address) : error)
    })
    asked.end()
  })
}

/** RFC 9110 sections 15.5.5, 15.5.9 and 15.6.4; of other statuses nothing is known. */
function meaning(status: number | undefined): string {
  if (status === 404) return ': its release may not say how it does'
  return status === 408 || status === 503 ? ': it is too busy to answer now, ask again' : ''
}
