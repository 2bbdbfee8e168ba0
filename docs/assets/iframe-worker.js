// A page that is opened from a disk may start no worker, and the search is one. There it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.frame = frame.contentWindow
      window.addEventListener("message", event => {
        if (event.source !== this.frame) return
        const passed = new MessageEvent("message", { data: event.data })
        this.dispatchEvent(passed)
        if (this.onmessage) this.onmessage(passed)
      })
      const inside = this.frame.document
      inside.open()
      inside.write(`<body><script>
        var postMessage = message => parent.postMessage(message, "*")
        var importScripts = (...addresses) => addresses.reduce((before, address) => before.then(() => new Promise(done => {
          const script = document.createElement("script")
          script.src = address
          script.onload = done
          document.body.append(script)
        })), Promise.resolve())
      <\/script><script src="${new URL(address, document.baseURI)}"><\/script></body>`)
      inside.close()
    }
    postMessage(message) { this.frame.dispatchEvent(new MessageEvent("message", { data: message })) }
    terminate() { this.frame.frameElement.remove() }
  }
}
