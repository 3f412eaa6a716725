/** Join tokens, in whatever form the command line prints them. */

/** Throws when there is none in what `sealane token create` printed. */
export function tokenIn(stdout: string): string {
  const [token] = /sealane1\.[\w.-]+/.exec(stdout) ?? []
  if (token === undefined) throw new Error(`no token in "${stdout}"`)
  return token
}
