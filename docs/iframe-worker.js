// Browsers start no workers for pages that are opened from a folder. There a hidden frame does the work, so that search is
// found everywhere; its name keeps Zensical from fetching such a script from elsewhere.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      this.ready = new Promise((done, failed) => {
        script.onload = done;
        script.onerror = failed;
      });
      this.ready.catch((error) => this.onerror?.(error));
      script.src = new URL(url, location.href).href;
      inside.document.documentElement.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      this.ready.then(() => this.frame.contentWindow?.onmessage({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
